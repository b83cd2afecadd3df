import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Report } from './report.ts'

function bench(...args: string[]): Promise<{ stdout: string }> {
  const short = ['--rounds', '1', '--duration-ms', '20', '--cores', 'shared']
  return promisify(execFile)(process.execPath, [join(import.meta.dirname, 'main.ts'), 'serve', ...short, ...args])
}

describe('npm run bench -- serve', function () {
  // The first run builds the Go program.
  this.timeout(300_000)

  it('measures all servers with every size, and prints one JSON object', async () => {
    const { stdout } = await bench()
    const { rows } = JSON.parse(stdout) as Report
    assert.deepEqual(
      rows.map(({ name }) => name),
      ['4 kB', '300 kB', '14 MB'].map((size) => `serve ${size}, cores shared`),
    )
    for (const { arms, ratios } of rows) {
      assert.deepEqual(Object.keys(arms), ['ours', 'go', 'goAllCores', 'sendfile', 'oursFromDisk'])
      for (const figures of Object.values(arms)) assert.ok(Number(figures['requestsPerSecond']) > 0)
      assert.equal(typeof arms['ours']!['lagP99Ms'], 'number')
      assert.ok(ratios[0]!.target)
    }
  })

  it('gives no figures when a server gives other bytes', async () => {
    const peer = `exec "${process.execPath}" -e 'require("http").createServer((_, res) => res.end("other")).listen({port}, "127.0.0.1")'`
    await assert.rejects(bench('--peer', peer), (err: { stdout: string; stderr: string }) => {
      assert.equal(err.stdout, '')
      assert.match(err.stderr, /the load on peer failed[^]*the body has sha256/)
      return true
    })
  })
})
