import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { isAlive } from './cache.ts'
import { eventually } from '../../controllers/runtime/eventually.ts'
import { startProcess, type SupervisedProcess } from './process.ts'

function startNode(script: string): Promise<SupervisedProcess> {
  return startProcess({ name: 'script', command: process.execPath, args: ['--eval', script] })
}

const idle = 'setInterval(() => {}, 1000);'

describe('a supervised process', function () {
  this.timeout(30_000)

  it('has the process number of the program itself', async () => {
    await using child = await startNode(`console.log('I am ' + process.pid); ${idle}`)
    const [, pid] = await child.waitForLine(/^I am (\d+)$/)
    assert.equal(Number(pid), child.pid)
  })

  it('tells how it ended and keeps what it said', async () => {
    const failing = await startNode(`console.log('out'); console.error('err'); process.exitCode = 3`)
    assert.deepEqual(await failing.exited, { code: 3, signal: null })
    assert.deepEqual(failing.logs().split('\n').toSorted(), ['err', 'out'])
    assert.equal(failing.running, false)
  })

  it('can be killed like any process', async () => {
    const child = await startNode(`console.log('up'); ${idle}`)
    await child.waitForLine(/up/)
    process.kill(child.pid, 'SIGKILL')
    assert.deepEqual(await child.exited, { code: null, signal: 'SIGKILL' })
  })

  it('keeps a bounded log', async () => {
    const chatty = await startNode(
      `for (let i = 1; i <= 5000; i++) console.log('line ' + i); console.log('x'.repeat(10000))`,
    )
    await chatty.exited
    assert.equal(chatty.logs().split('\n').length, 1000)
    assert.equal(chatty.logs(1).length, 4000)
    assert.match(chatty.logs(2), /^line 5000\n/)
  })

  it('stops in its own way within the grace time', async () => {
    const polite = await startNode(`process.on('SIGTERM', () => process.exit(7)); console.log('up'); ${idle}`)
    await polite.waitForLine(/up/)
    assert.deepEqual(await polite.stop(), { code: 7, signal: null })
    assert.deepEqual(await polite.stop(), { code: 7, signal: null })
  })

  it('is killed, with all that it started, when it does not stop', async () => {
    const stubborn = await startNode(`
      const child = require('node:child_process').spawn('/bin/sleep', ['1000'])
      process.on('SIGTERM', () => {})
      console.log('started ' + child.pid); ${idle}`)
    const [, grandchild] = await stubborn.waitForLine(/started (\d+)/)
    assert.deepEqual(await stubborn.stop(100), { code: null, signal: 'SIGKILL' })
    await eventually(() => !isAlive(Number(grandchild)))
  })

  it('takes along what it started when it ends by itself', async () => {
    const child = await startNode(`
      const child = require('node:child_process').spawn('/bin/sleep', ['1000'], { stdio: 'ignore' })
      child.unref()
      console.log('started ' + child.pid)`)
    const [, grandchild] = await child.waitForLine(/started (\d+)/)
    assert.deepEqual(await child.exited, { code: 0, signal: null })
    await eventually(() => !isAlive(Number(grandchild)))
  })

  it('fails the wait for a line, with its log, when it ends before', async () => {
    const child = await startNode(`console.error('no such thing'); process.exitCode = 1`)
    await assert.rejects(child.waitForLine(/ready/), /script ended with code 1 before .*ready.*\nno such thing/s)
  })

  it('fails a wait that takes too long', async () => {
    await using child = await startNode(idle)
    await assert.rejects(
      child.waitUntil(() => false, 100),
      /script did not reach readiness within 100 ms/,
    )
  })

  it('reports a program that does not exist, and a folder that does not', async () => {
    const missing = await startProcess({ name: 'missing', command: '/does/not/exist' })
    assert.equal((await missing.exited).code, 127)
    assert.match(missing.logs(), /not found|No such file/)
    await assert.rejects(startProcess({ name: 'nowhere', command: '/bin/true', cwd: '/does/not/exist' }), {
      code: 'ENOENT',
    })
  })

  it('does not outlive a parent that is killed', async () => {
    const script = `
      import { startProcess } from ${JSON.stringify(join(import.meta.dirname, 'process.ts'))}
      const children = [1, 2].map(() => startProcess({ name: 'sleep', command: '/bin/sleep', args: ['1000'] }))
      console.log(JSON.stringify((await Promise.all(children)).map((child) => child.pid)))`
    const parent = spawn(process.execPath, ['--input-type=module', '--eval', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [line] = await once(createInterface({ input: parent.stdout }), 'line')
    const pids: number[] = JSON.parse(String(line))
    assert.equal(pids.length, 2)
    assert.ok(pids.every(isAlive))
    parent.kill('SIGKILL')
    await eventually(() => !pids.some(isAlive))
  })
})
