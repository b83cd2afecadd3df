import assert from 'node:assert/strict'
import { appendFile, readdir, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { linkEntry } from '../archive/test-archive.ts'
import type { Entries, Entry } from '../entry.ts'
import { SharedArchives, type KnownArchive } from './shared-archives.ts'
import type { StoreOptions, StoreResult } from './storage.ts'
import { makeStorage, type StorageFixture } from './test-storage.ts'
import { entriesOf } from '../test-support.ts'

const content = { 'a.txt': 'a', 'b.md': 'b' }

/** Stores the same entries for the n-th object; `read` is true once they have been looked at. */
async function storeShared(
  f: StorageFixture,
  n: number,
  options: Partial<StoreOptions> = {},
  entries: Entries = entriesOf(content),
): Promise<StoreResult & { read: boolean }> {
  let read = false
  const observed: Entries = {
    async *[Symbol.asyncIterator]() {
      read = true
      yield* entries
    },
  }
  const result = await f.storage.store(`gitrepository/team/app-${n}`, 'r', observed, {
    fileName: 'file',
    contentKey: 'key',
    ...options,
  })
  return { ...result, read }
}

async function inodeOf(f: StorageFixture, { artifact }: StoreResult): Promise<number> {
  return (await stat(join(f.root, artifact.path))).ino
}

describe('archives of one content', function () {
  this.timeout(60_000)

  it('are made once: nobody else reads anything, and all have one inode', async () => {
    await using f = await makeStorage()
    const first = await storeShared(f, 0)
    const second = await storeShared(f, 1, { metadata: { a: 'b' } })
    assert.deepEqual([first.read, second.read, second.changed], [true, false, true])
    assert.deepEqual(second.artifact, {
      ...first.artifact,
      path: 'gitrepository/team/app-1/file.tar.gz',
      metadata: { a: 'b' },
    })
    assert.equal(await inodeOf(f, first), await inodeOf(f, second))
    assert.equal(await f.storage.check(second.artifact), 'intact')
    assert.deepEqual(await readdir(join(f.root, '.openflux/tmp')), [])
  })

  it('are made once for many who ask at the same time', async () => {
    await using f = await makeStorage()
    const results = await Promise.all(Array.from({ length: 50 }, (_, n) => storeShared(f, n)))
    assert.equal(results.filter(({ read }) => read).length, 1)
    assert.equal(new Set(await Promise.all(results.map((result) => inodeOf(f, result)))).size, 1)
    for (const { artifact } of results) assert.equal(await f.storage.check(artifact), 'intact')
  })

  it('change nothing for an object that has them', async () => {
    await using f = await makeStorage()
    const { artifact } = await storeShared(f, 0)
    const again = await storeShared(f, 0)
    assert.deepEqual(again, { artifact, changed: false, droppedSymlinks: 0, read: false })
  })

  it('are told apart by key, ignore rules and what becomes of links; without a key nothing is shared', async () => {
    await using f = await makeStorage()
    const entries = [...entriesOf(content), linkEntry('good', 'a.txt'), linkEntry('bad', '/etc')]
    const variants: [Partial<StoreOptions>, number][] = [
      [{}, 2],
      [{ ignore: '*.md' }, 2],
      [{ ignore: '' }, 2],
      [{ symlinks: 'keep' }, 1],
      [{ contentKey: 'other' }, 2],
    ]
    for (const [at, [options, dropped]] of variants.entries()) {
      const made = await storeShared(f, at, options, entries)
      const linked = await storeShared(f, 10 + at, options, entries)
      assert.deepEqual([made.read, linked.read], [true, false], JSON.stringify(options))
      assert.deepEqual([made.droppedSymlinks, linked.droppedSymlinks], [dropped, dropped])
      assert.equal(made.artifact.digest, linked.artifact.digest)
    }
    assert.equal((await storeShared(f, 20, { contentKey: undefined })).read, true)
    assert.equal((await storeShared(f, 21, { contentKey: undefined })).read, true)
  })

  it('are made by the next one, with entries of its own, where the first fails or gives up', async () => {
    const broken: Entry[] = [{ path: 'a', mode: 0, sizeBytes: 1, open: () => Promise.reject(new Error('gone')) }]
    await using f = await makeStorage()
    const failing = storeShared(f, 0, {}, broken)
    const aborter = new AbortController()
    const hanging = storeShared(
      f,
      1,
      { signal: aborter.signal },
      { [Symbol.asyncIterator]: () => ({ next: () => new Promise<never>(() => {}) }) },
    )
    const others = Promise.all(Array.from({ length: 10 }, (_, n) => storeShared(f, 2 + n)))
    await assert.rejects(failing, { reason: 'ArchiveOperationFailed', message: 'failed to read "a": gone' })
    const waiter = new AbortController()
    const impatient = storeShared(f, 20, { signal: waiter.signal })
    waiter.abort(new Error('no time'))
    await assert.rejects(impatient, { message: 'no time' }, 'at once, although another one hangs')
    aborter.abort(new Error('lost the lease'))
    await assert.rejects(hanging, { message: 'lost the lease' })
    assert.equal((await others).filter(({ read }) => read).length, 1)
    assert.deepEqual(await readdir(join(f.root, '.openflux/tmp')), [])
  })

  const damages: Record<string, (file: string) => Promise<unknown>> = {
    'that has been damaged': (file) => appendFile(file, 'X'),
    'that has gone': (file) => rm(file),
  }
  for (const [what, damage] of Object.entries(damages)) {
    it(`are made again instead of one ${what}, and all who share it get the new one`, async () => {
      await using f = await makeStorage()
      const first = await storeShared(f, 0)
      const bytes = await readFile(join(f.root, first.artifact.path))
      const hex = first.artifact.digest.slice('sha256:'.length)
      await damage(join(f.root, '.openflux/blobs/sha256', hex.slice(0, 2), hex))
      const second = await storeShared(f, 1)
      const third = await storeShared(f, 2)
      assert.deepEqual([second.read, third.read], [true, false])
      for (const { artifact } of [first, second, third]) {
        assert.equal(await f.storage.check(artifact), 'intact')
        assert.deepEqual(await readFile(join(f.root, artifact.path)), bytes)
      }
    })
  }

  it('are known for the ten thousand keys that were used last', async () => {
    const shared = new SharedArchives()
    const archive: KnownArchive = { digest: '', sizeBytes: 0, droppedSymlinks: 0 }
    const use = (key: string): Promise<string> =>
      shared.run(key, { reuse: async () => 'reused', build: async () => ({ result: 'built', archive }) })
    for (let i = 0; i < 10_000; i++) assert.equal(await use(`${i}`), 'built')
    assert.equal(await use('0'), 'reused')
    assert.equal(await use('10000'), 'built')
    assert.equal(await use('0'), 'reused')
    assert.equal(await use('1'), 'built')
  })
})
