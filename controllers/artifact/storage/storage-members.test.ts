import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, open, readFile, rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { gunzipSync } from 'node:zlib'
import type { Member } from '../archive/members.ts'
import { archiveOf, makeTree, textEntry } from '../archive/test-archive.ts'
import { gzipSingle } from '../archive/gzip.ts'
import type { Entry } from '../entry.ts'
import { MemberStore } from './member-store.ts'
import type { StoreResult } from './storage.ts'
import { folder, makeStorage, type StorageFixture } from './test-storage.ts'
import { makeRandom, makeTempFolder } from '../test-support.ts'

const run = promisify(execFile)

function storeTree(f: StorageFixture, fileName: string, entries: Entry[], into = folder): Promise<StoreResult> {
  return f.storage.store(into, fileName, entries, { fileName })
}

/** The tree with other content in one file. */
function changed(tree: Entry[], at: number, seed: number, opened?: string[]): Entry[] {
  const { path, sizeBytes } = tree[at]!
  return tree.with(at, textEntry(path, sizeBytes + (seed % 3), seed, opened))
}

async function coldDigest(entries: Entry[]): Promise<string> {
  return (await archiveOf(entries)).result.digest
}

describe('archives of which a part is stored already', function () {
  this.timeout(60_000)

  it('read and compress only what is near a change, and have the digest of one made from nothing', async () => {
    const seed = Date.now() % 2 ** 32
    const random = makeRandom(seed)
    const opened: string[] = []
    await using f = await makeStorage()
    let tree = makeTree(seed, 150, 4000, opened)
    await storeTree(f, 'first', tree)
    assert.equal(opened.length, 150)
    for (let edit = 0; edit < 8; edit++) {
      tree = changed(tree, random(tree.length), random(2 ** 31), opened)
      opened.length = 0
      const { artifact } = await storeTree(f, `edit-${edit}`, tree)
      assert.ok(opened.length > 0 && opened.length < 60, `seed ${seed}, edit ${edit}: ${opened.length} read`)
      assert.equal(artifact.digest, await coldDigest(tree), `seed ${seed}, edit ${edit}`)
    }
    opened.length = 0
    await storeTree(f, 'other-object', tree, 'gitrepository/team-b/app')
    assert.deepEqual(opened, [])
  })

  it('have the digest that another process gives them', async () => {
    await using f = await makeStorage()
    await using temp = await makeTempFolder()
    const tree = makeTree(7, 100, 3000)
    await storeTree(f, 'one', tree)
    const { artifact } = await storeTree(f, 'two', changed(tree, 5, 99))
    const module = (name: string): string => JSON.stringify(join(import.meta.dirname, name))
    const script = `
      const { openStorage } = await import(${module('storage.ts')})
      const { makeTree, textEntry } = await import(${module('../archive/test-archive.ts')})
      const tree = makeTree(7, 100, 3000)
      tree[5] = textEntry(tree[5].path, tree[5].sizeBytes, 99)
      const storage = await openStorage({ root: ${JSON.stringify(temp.path)} })
      console.log((await storage.store('gitrepository/a/b', 'r', tree, { fileName: 'x' })).artifact.digest)`
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script])
    assert.equal(stdout.trim(), artifact.digest)
  })

  const damages: Record<string, (file: string) => Promise<unknown>> = {
    'overwritten in the middle': async (file) => {
      const handle = await open(file, 'r+')
      await handle.write(Buffer.from('DAMAGE'), 0, 6, 40_000)
      await handle.close()
    },
    cut: (file) => truncate(file, 30_000),
    removed: (file) => rm(file),
    'replaced by a folder': async (file) => {
      await rm(file)
      await mkdir(file)
    },
    'replaced by a named pipe': async (file) => {
      await rm(file)
      await run('mkfifo', [file])
    },
    'replaced by other bytes': (file) => writeFile(file, Buffer.alloc(200_000, 7)),
  }
  for (const [what, damage] of Object.entries(damages)) {
    it(`are right although what they could be taken from has been ${what}`, async () => {
      await using f = await makeStorage()
      const tree = makeTree(1, 150, 3000)
      const first = await storeTree(f, 'one', tree)
      const hex = first.artifact.digest.slice('sha256:'.length)
      await damage(join(f.root, '.openflux/blobs/sha256', hex.slice(0, 2), hex))
      if (!what.startsWith('re')) await damage(join(f.root, first.artifact.path))
      const next = changed(tree, 75, 5)
      const { artifact } = await storeTree(f, 'two', next)
      assert.equal(artifact.digest, await coldDigest(next))
      assert.equal(await f.storage.check(artifact), 'intact')
    })
  }

  it('are right when many are stored at once, and old ones are collected', async () => {
    await using f = await makeStorage({ retentionRecords: 1, retentionTtlMs: 0 })
    const tree = makeTree(2, 60, 3000)
    for (let round = 0; round < 5; round++) {
      f.clock.ms += 1000
      const trees = Array.from({ length: 4 }, (_, i) => changed(tree, i, round * 10 + i))
      const stored = trees.map(async (each, i) => {
        const into = `gitrepository/team/app-${i}`
        const { artifact } = await storeTree(f, `round-${round}`, each, into)
        await f.storage.collectGarbage(into, artifact.path)
        return artifact
      })
      const sweeping = f.storage.sweep('gitrepository', () => true)
      for (const [i, artifact] of (await Promise.all(stored)).entries()) {
        assert.equal(artifact.digest, await coldDigest(trees[i]!))
        assert.equal(await f.storage.check(artifact), 'intact')
      }
      await sweeping
    }
  })

  it('have a single member where readers want that, and are then made anew as a whole', async () => {
    const opened: string[] = []
    await using f = await makeStorage({ gzip: 'single' })
    const tree = makeTree(1, 20, 3000, opened)
    const { artifact } = await storeTree(f, 'one', tree)
    await storeTree(f, 'two', changed(tree, 3, 1, opened))
    assert.equal(opened.length, 40)
    const bytes = await readFile(join(f.root, artifact.path))
    assert.deepEqual(bytes, (await archiveOf(tree, { compress: gzipSingle })).bytes)
    assert.deepEqual(gunzipSync(bytes), gunzipSync((await archiveOf(tree)).bytes))
  })
})

describe('places of members', () => {
  const member = (key: string): Member => ({ first: 0, end: 1, segment: 0, segments: 1, key })

  it('are found in any of the files, those that lie together with one look', async () => {
    await using temp = await makeTempFolder()
    const file = join(temp.path, 'archive')
    await writeFile(file, 'onetwothree')
    const store = new MemberStore()
    const session = store.begin()
    for (const text of ['one', 'two', 'three']) session.add(text, Buffer.from(text))
    session.keep([join(temp.path, 'gone'), file])
    const members = ['two', 'three', 'one'].map(member)
    const found = await store.begin().read(members, 0)
    assert.deepEqual([found.count, found.bytes.toString()], [2, 'twothree'])
    const last = await store.begin().read(members, 2)
    assert.deepEqual([last.count, last.bytes.toString()], [1, 'one'])
  })

  it('are forgotten once their bytes are not what they were, and only those', async () => {
    await using temp = await makeTempFolder()
    const file = join(temp.path, 'archive')
    await writeFile(file, 'oneTWOthree')
    const store = new MemberStore()
    const session = store.begin()
    for (const text of ['one', 'two', 'three']) session.add(text, Buffer.from(text))
    session.keep([file])
    const next = store.begin()
    const found = await next.read(['one', 'two', 'three'].map(member), 0)
    assert.deepEqual([found.count, found.bytes.toString()], [1, 'one'])
    assert.deepEqual(
      ['one', 'two', 'three'].map((key) => next.has(key)),
      [true, false, true],
    )
  })

  it('are all given up after one look where the archive is gone, so that its members are compressed side by side', async () => {
    await using temp = await makeTempFolder()
    const store = new MemberStore()
    const keys = ['one', 'two', 'three']
    const session = store.begin()
    for (const key of keys) session.add(key, Buffer.from(key))
    session.keep([join(temp.path, 'gone')])
    const next = store.begin()
    assert.ok(keys.every((key) => next.has(key)))
    assert.equal((await next.read(keys.map(member), 0)).count, 0)
    assert.ok(!keys.some((key) => next.has(key)))
    next.add('two', Buffer.from('two'))
    next.keep([join(temp.path, 'new')])
    assert.ok(next.has('two'))
  })

  it('are not taken for neighbours where they lie in different files', async () => {
    await using temp = await makeTempFolder()
    const store = new MemberStore()
    for (const [file, texts] of Object.entries({ a: ['one', 'two'], b: ['new', 'two'] })) {
      const session = store.begin()
      for (const text of texts) session.add(text, Buffer.from(text))
      session.keep([join(temp.path, file)])
      await writeFile(join(temp.path, file), texts.join('').replace('onetwo', 'oneold'))
    }
    const next = store.begin()
    assert.equal((await next.read(['one', 'two'].map(member), 0)).bytes.toString(), 'one')
    assert.equal((await next.read(['one', 'two'].map(member), 1)).bytes.toString(), 'two')
  })

  it('are limited in number: those not used for longest go first', async () => {
    const store = new MemberStore(3)
    const keep = (...keys: string[]): void => {
      const session = store.begin()
      for (const key of keys) session.add(key, Buffer.from(key))
      session.keep(['file'])
    }
    const known = (): string[] => ['a', 'b', 'c', 'd', 'e'].filter((key) => store.begin().has(key))
    keep('a', 'b')
    keep('c')
    keep('a')
    keep('d')
    assert.deepEqual(known(), ['a', 'c', 'd'])
    keep('a', 'b', 'c', 'd', 'e')
    assert.deepEqual(known(), ['c', 'd', 'e'])
  })
})
