import assert from 'node:assert/strict'
import { startProcess } from '../tools/process.ts'
import { watchTree } from './process-tree.ts'

const burnt = 0.3
const burn = `while (process.cpuUsage().user < ${burnt * 1e6});`

describe('process tree', function () {
  this.timeout(60_000)

  it('counts the processor time of children that have ended, and the memory of those that live', async () => {
    const script = `"$0" -e "$1"; echo burnt; "$0" -e 'console.log("alive"); setInterval(() => {}, 1000)'`
    await using child = await startProcess({
      name: 'tree',
      command: '/bin/sh',
      args: ['-c', script, process.execPath, burn],
    })
    const watch = watchTree(child.pid)
    await child.waitForLine(/alive/)
    const { cpuSeconds, peakRssBytes, peakPssBytes } = watch.stop()
    assert.ok(cpuSeconds >= burnt - 0.05, `${cpuSeconds} s`)
    assert.ok(
      peakRssBytes > 30e6 && peakPssBytes > 10e6 && peakPssBytes <= peakRssBytes,
      `${peakRssBytes}, ${peakPssBytes}`,
    )
  })
})
