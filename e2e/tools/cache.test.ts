import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { cached, cacheFolder, withLock } from './cache.ts'

describe('the cache of programs', function () {
  this.timeout(30_000)
  let root: string
  let folder: string

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'cache-test-'))
    folder = join(root, 'tool', 'v1')
  })
  afterEach(() => rm(root, { recursive: true }))

  it('makes a folder once', async () => {
    let made = 0
    const make = async (temporary: string) => {
      made++
      await writeFile(join(temporary, 'program'), 'x')
    }
    assert.equal(await cached(folder, make), folder)
    assert.equal(await cached(folder, make), folder)
    assert.equal(made, 1)
    assert.deepEqual(await readdir(join(root, 'tool')), ['v1'])
  })

  it('leaves nothing behind when making fails, so that the next try makes it', async () => {
    const failing = cached(folder, async (temporary) => {
      await writeFile(join(temporary, 'half'), 'x')
      throw new Error('no compiler')
    })
    await assert.rejects(failing, /no compiler/)
    assert.deepEqual(await readdir(join(root, 'tool')), [])
    await cached(folder, async (temporary) => writeFile(join(temporary, 'program'), 'x'))
    assert.deepEqual(await readdir(folder), ['program'])
  })

  it('removes what a killed builder left', async () => {
    await mkdir(join(root, 'tool', 'v1.tmp-abc'), { recursive: true })
    await cached(folder, async () => {})
    assert.deepEqual(await readdir(join(root, 'tool')), ['v1'])
  })

  it('lets one of several processes make it while the others wait', async () => {
    const script = `
      import { appendFile } from 'node:fs/promises'
      import { setTimeout as sleep } from 'node:timers/promises'
      import { cached } from ${JSON.stringify(join(import.meta.dirname, 'cache.ts'))}
      await cached(${JSON.stringify(folder)}, async () => {
        await appendFile(${JSON.stringify(join(root, 'makers'))}, 'x')
        await sleep(500)
      })`
    const builders = [1, 2, 3].map(() => spawn(process.execPath, ['--input-type=module', '--eval', script]))
    const codes = await Promise.all(builders.map((builder) => once(builder, 'exit')))
    assert.deepEqual(
      codes.map(([code]) => code),
      [0, 0, 0],
    )
    assert.equal(await readFile(join(root, 'makers'), 'utf8'), 'x')
  })

  it('honours XDG_CACHE_HOME when it is absolute', () => {
    const before = process.env.XDG_CACHE_HOME
    try {
      process.env.XDG_CACHE_HOME = '/somewhere'
      assert.equal(cacheFolder('tool', 'v1'), '/somewhere/openflux/tool/v1')
      process.env.XDG_CACHE_HOME = 'relative'
      assert.doesNotMatch(cacheFolder('tool'), /relative/)
    } finally {
      if (before === undefined) delete process.env.XDG_CACHE_HOME
      else process.env.XDG_CACHE_HOME = before
    }
  })
})

describe('a lock file', function () {
  this.timeout(30_000)
  let root: string
  let file: string

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'lock-test-'))
    file = join(root, 'lock')
  })
  afterEach(() => rm(root, { recursive: true }))

  it('lets one in at a time', async () => {
    let inside = 0
    const work = async () => {
      assert.equal(++inside, 1)
      await sleep(50)
      inside--
    }
    await Promise.all([1, 2, 3].map(() => withLock(file, work)))
    assert.deepEqual(await readdir(root), [])
  })

  it('is released when the work fails', async () => {
    const failing = withLock(file, async () => {
      throw new Error('broken')
    })
    await assert.rejects(failing, /broken/)
    assert.equal(await withLock(file, async () => 'again'), 'again')
  })

  it('is taken over from a process that is gone', async () => {
    const gone = spawn('/bin/true')
    await once(gone, 'exit')
    await writeFile(file, `${gone.pid} ${hostname()} token`)
    assert.equal(await withLock(file, async () => 'mine'), 'mine')
  })

  it('is taken over when nobody has touched it for long, whatever is in it', async () => {
    await writeFile(file, '')
    await utimes(file, new Date(), new Date(Date.now() - 31_000))
    assert.equal(await withLock(file, async () => 'mine'), 'mine')
  })

  it('is not taken from a living process, nor from another host that touches it', async () => {
    for (const owner of [`${process.pid} ${hostname()} token`, `${2 ** 22} elsewhere token`]) {
      await writeFile(file, owner)
      const waiting = withLock(file, async () => 'mine')
      assert.equal(await Promise.race([waiting, sleep(700, 'still waiting')]), 'still waiting')
      await rm(file)
      assert.equal(await waiting, 'mine')
    }
  })
})
