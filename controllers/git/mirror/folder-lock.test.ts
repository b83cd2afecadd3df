import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { eventually } from '../../runtime/eventually.ts'
import { lockFolder } from './folder-lock.ts'

describe('the lock of a folder', function () {
  this.timeout(60_000)
  let folder: string
  let signal: AbortSignal

  beforeEach(async () => {
    signal = AbortSignal.timeout(60_000)
    folder = await mkdtemp(join(tmpdir(), 'openflux-lock-'))
  })
  afterEach(() => rm(folder, { recursive: true, force: true }))

  /** A process that takes the lock, starts a group of its own as git would, and waits. */
  async function holder(): Promise<{ kill(): void; group: number }> {
    const script = `
      import { spawn } from 'node:child_process'
      import { lockFolder } from ${JSON.stringify(new URL('folder-lock.ts', import.meta.url).href)}
      const lock = await lockFolder(${JSON.stringify(folder)}, AbortSignal.timeout(60000))
      const child = spawn('sleep', ['600'], { detached: true, stdio: 'ignore' })
      lock.recordGroup(child.pid)
      console.log(child.pid)
      setInterval(() => {}, 1000)`
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [line] = await once(child.stdout, 'data')
    return { kill: () => void child.kill('SIGKILL'), group: Number(String(line)) }
  }

  it('is held by one at a time', async () => {
    const held = await lockFolder(folder, signal)
    let entered = false
    const next = lockFolder(folder, signal).then((lock) => {
      entered = true
      return lock
    })
    await assert.rejects(lockFolder(folder, AbortSignal.timeout(300)), { name: 'AbortError' })
    assert.equal(entered, false)
    await held.release()
    await (await next).release()
    assert.deepEqual(await readdir(folder), [])
  })

  it('is had in a new folder where its holder has removed the old one', async () => {
    const removed = `${folder}.removed`
    const held = await lockFolder(folder, signal)
    const waiting = lockFolder(folder, signal)
    await eventually(async () => (await readdir(folder)).length === 2)
    await rename(folder, removed)
    const lock = await waiting
    await held.release()
    assert.deepEqual(await readdir(folder), ['lock'])
    await lock.release()
    await rm(removed, { recursive: true })
  })

  it('is respected between processes, and falls to the next when its holder is killed, whose git processes end', async () => {
    const other = await holder()
    await assert.rejects(lockFolder(folder, AbortSignal.timeout(300)), { name: 'AbortError' })
    assert.ok(isAlive(other.group))
    other.kill()
    await (await lockFolder(folder, signal)).release()
    await eventually(() => !isAlive(other.group))
    assert.deepEqual(await readdir(folder), [])
  })

  it('is taken from a holder elsewhere that gives no sign of life, and from nobody before', async () => {
    const path = join(folder, 'lock')
    await writeFile(path, JSON.stringify({ machine: 'another', pid: process.pid, started: '', nonce: 'x' }))
    await assert.rejects(lockFolder(folder, AbortSignal.timeout(300)), { name: 'AbortError' })
    await utimes(path, new Date(), new Date(Date.now() - 60_000))
    await (await lockFolder(folder, signal)).release()
  })

  it('is not taken for granted when its file says nothing', async () => {
    const path = join(folder, 'lock')
    await writeFile(path, '{')
    await assert.rejects(lockFolder(folder, AbortSignal.timeout(300)), { name: 'AbortError' })
    await utimes(path, new Date(), new Date(Date.now() - 60_000))
    await (await lockFolder(folder, signal)).release()
  })

  it('gives signs of life, and is not removed by one who has lost it', async () => {
    const path = join(folder, 'lock')
    const held = await lockFolder(folder, signal)
    await utimes(path, 0, 0)
    await eventually(async () => (await stat(path)).mtimeMs > 1)
    await writeFile(path, JSON.stringify({ machine: 'another', pid: 1, started: '', nonce: 'y' }))
    await held.release()
    assert.match(await readFile(path, 'utf8'), /another/)
  })
})

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
