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
    const { cpuSeconds, peakRssBytes, peakMemoryBytes } = watch.stop()
    assert.ok(cpuSeconds >= burnt - 0.05, `${cpuSeconds} s`)
    assert.ok(peakMemoryBytes > 30e6 && peakMemoryBytes <= peakRssBytes, `${peakMemoryBytes}, ${peakRssBytes}`)
  })

  it('counts what the processes of a tree share once, and in full although others share it too', async () => {
    const script = `"$0" -e "$1" & "$0" -e "$1" & wait`
    const live = 'console.log("alive"); setInterval(() => {}, 1000)'
    const start = (...args: string[]) => startProcess({ name: 'tree', command: process.execPath, args })
    await using one = await start('-e', live)
    await using other = await start('-e', live)
    await using both = await startProcess({
      name: 'tree',
      command: '/bin/sh',
      args: ['-c', script, process.execPath, live],
    })
    for (const child of [one, other]) await child.waitForLine(/alive/)
    await both.waitUntil(() => both.logs() === 'alive\nalive')
    const single = watchTree(one.pid).stop()
    // This process runs the same program.
    assert.equal(single.peakMemoryBytes, single.peakRssBytes)
    const twin = watchTree(both.pid).stop()
    assert.ok(twin.peakMemoryBytes < twin.peakRssBytes - 20e6, `${twin.peakMemoryBytes}, ${twin.peakRssBytes}`)
    assert.ok(twin.peakMemoryBytes > single.peakMemoryBytes)
  })
})
