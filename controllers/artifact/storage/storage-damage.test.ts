import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { linkSync } from 'node:fs'
import {
  appendFile,
  chmod,
  link,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { openStorage } from './storage.ts'
import { entriesOf } from '../test-support.ts'
import type { StoredArtifact } from '../stored.ts'
import { makeStorage, type StorageFixture } from './test-storage.ts'

const other = 'gitrepository/team-b/app'

async function overwrite(file: string): Promise<void> {
  const handle = await open(file, 'r+')
  await handle.write(Buffer.from('DAMAGE'), 0, 6, 20)
  await handle.close()
}

/** What somebody may do to a file, and what is then said of it. */
const damages: Record<string, { damage: (file: string) => Promise<unknown>; state: 'intact' | 'missing' | 'damaged' }> =
  {
    'something is appended': { damage: (file) => appendFile(file, 'X\n'), state: 'damaged' },
    'it is cut': { damage: (file) => truncate(file, 30), state: 'damaged' },
    'it is emptied': { damage: (file) => truncate(file, 0), state: 'damaged' },
    'bytes are overwritten in place': { damage: overwrite, state: 'damaged' },
    'it is replaced by another file': {
      damage: async (file) => {
        await writeFile(`${file}.new`, 'something else')
        await rename(`${file}.new`, file)
      },
      state: 'damaged',
    },
    'it is replaced by a copy': {
      damage: async (file) => {
        await writeFile(`${file}.new`, await readFile(file))
        await rename(`${file}.new`, file)
      },
      state: 'intact',
    },
    'its mode is changed': { damage: (file) => chmod(file, 0o400), state: 'intact' },
    'it is touched': { damage: (file) => utimes(file, 1, 1), state: 'intact' },
    'it gets another name': { damage: (file) => link(file, `${file}.other`), state: 'intact' },
    'it is deleted': { damage: (file) => rm(file), state: 'missing' },
    'it is replaced by a link to its own bytes': {
      damage: async (file) => {
        await rename(file, `${file}.moved`)
        await symlink(`${file}.moved`, file)
      },
      state: 'damaged',
    },
    'it is replaced by a link to nothing': {
      damage: async (file) => {
        await rm(file)
        await symlink('/nonexistent', file)
      },
      state: 'damaged',
    },
    'it is replaced by a folder': {
      damage: async (file) => {
        await rm(file)
        await mkdir(join(file, 'x'), { recursive: true })
      },
      state: 'damaged',
    },
    'it is replaced by a named pipe': {
      damage: async (file) => {
        await rm(file)
        await promisify(execFile)('mkfifo', [file])
      },
      state: 'damaged',
    },
  }

async function served({ storage }: StorageFixture, path: string): Promise<Buffer | string | undefined> {
  const opened = await storage.open(path)
  if (typeof opened !== 'object') return opened
  const bytes = await opened.handle.readFile()
  await opened.handle.close()
  return bytes
}

/** Two objects, one inode, and damage through the name of the first. */
async function makeShared(
  damage: (file: string) => Promise<unknown>,
): Promise<{ f: StorageFixture; a: StoredArtifact; b: StoredArtifact }> {
  const f = await makeStorage()
  const a = (await f.store('same', 'r', 'h')).artifact
  const b = (await f.store('same', 'r', 'h', other)).artifact
  assert.equal((await stat(join(f.root, a.path))).ino, (await stat(join(f.root, b.path))).ino)
  await damage(join(f.root, a.path))
  return { f, a, b }
}

describe('damage to stored files', function () {
  this.timeout(60_000)

  for (const [what, { damage, state }] of Object.entries(damages)) {
    it(`${what}: it is ${state}, and right again after a store`, async () => {
      await using f = await makeStorage()
      const { artifact } = await f.store('one')
      const bytes = await served(f, artifact.path)
      await damage(join(f.root, artifact.path))
      const broken = state !== 'intact'
      assert.deepEqual(await f.storage.patrol(), broken ? [artifact.path] : [], 'noticed without a request')
      assert.equal(await f.storage.check(artifact), state)
      assert.deepEqual(await served(f, artifact.path), broken ? state : bytes)

      await f.storage.discard(artifact.path)
      assert.equal(await f.storage.check(artifact), broken ? 'missing' : 'intact', 'only what is damaged is removed')
      assert.deepEqual(await f.store('one'), { artifact, changed: false, droppedSymlinks: 0 })
      assert.equal(await f.storage.check(artifact), 'intact')
      assert.deepEqual(await served(f, artifact.path), bytes)
      assert.deepEqual(await f.storage.patrol(), [])
    })

    it(`${what}: a store mends it without a discard`, async () => {
      await using f = await makeStorage()
      const { artifact } = await f.store('one')
      await damage(join(f.root, artifact.path))
      assert.deepEqual(await f.store('one'), { artifact, changed: false, droppedSymlinks: 0 })
      const fresh = await openStorage({ root: f.root })
      assert.equal(await fresh.check(artifact), 'intact')
      assert.ok((await lstat(join(f.root, artifact.path))).isFile())
    })
  }

  it('is found by a process that has never seen the file whole', async () => {
    await using f = await makeStorage()
    const { artifact } = await f.store('one')
    await overwrite(join(f.root, artifact.path))
    const fresh = await openStorage({ root: f.root })
    assert.equal(await fresh.open(artifact.path), 'damaged')
  })

  it('is found in a log that tells another digest than asked for', async () => {
    await using f = await makeStorage()
    const { artifact } = await f.store('one')
    assert.equal(
      await f.storage.check({ ...artifact, digest: artifact.digest.replace(/.$/, (c) => (c === '0' ? '1' : '0')) }),
      'damaged',
    )
    assert.equal(await f.storage.check({ ...artifact, digest: 'nonsense' }), 'damaged')
  })
})

describe('damage to bytes that objects share', function () {
  this.timeout(60_000)

  it('is never served through the other name, and a store of the one repairs both', async () => {
    const { f, a, b } = await makeShared(overwrite)
    await using _ = f
    assert.equal(await served(f, b.path), 'damaged')
    assert.deepEqual((await f.storage.patrol()).toSorted(), [a.path, b.path])
    await f.storage.discard(a.path)
    await f.store('same', 'r', 'h')
    assert.equal(await f.storage.check(a), 'intact')
    assert.equal(await f.storage.check(b), 'intact', 'the other one too')
    assert.equal((await stat(join(f.root, a.path))).ino, (await stat(join(f.root, b.path))).ino)
    assert.deepEqual(await served(f, a.path), await served(f, b.path))
  })

  it('is repaired under every name, also for a process that knows none of them', async () => {
    const { f, a, b } = await makeShared((file) => appendFile(file, 'X'))
    await using _ = f
    const third = 'gitrepository/team-c/app'
    const fresh = await openStorage({ root: f.root, now: () => f.clock.ms })
    const { artifact } = await fresh.store(third, 'r', entriesOf({ 'a.txt': 'same' }), { fileName: 'h' })
    assert.equal(artifact.digest, a.digest)
    for (const each of [a, b, artifact]) assert.equal(await fresh.check(each), 'intact', each.path)
  })

  it('never reaches those whose file has been repaired: new bytes are a new inode', async () => {
    const { f, a, b } = await makeShared(overwrite)
    await using _ = f
    const damaged = await open(join(f.root, b.path), 'r+')
    await f.store('same', 'r', 'h')
    await damaged.write(Buffer.from('MORE DAMAGE'), 0, 11, 0)
    await damaged.close()
    assert.equal(await f.storage.check(a), 'intact')
    assert.equal(await f.storage.check(b), 'intact')
  })

  it('does not reach a replaced file: the other name keeps its bytes', async () => {
    const { f, a, b } = await makeShared(async (file) => {
      await writeFile(`${file}.new`, 'something else')
      await rename(`${file}.new`, file)
    })
    await using _ = f
    assert.equal(await f.storage.check(a), 'damaged')
    assert.equal(await f.storage.check(b), 'intact')
  })

  it('is found when many ask at once, by one hash', async () => {
    await using f = await makeStorage()
    const { artifact } = await f.store('one')
    await overwrite(join(f.root, artifact.path))
    const states = await Promise.all(Array.from({ length: 50 }, () => served(f, artifact.path)))
    assert.deepEqual(new Set(states), new Set(['damaged']))
  })
})

describe('a blob that can get no further name', function () {
  this.timeout(60_000)

  it('leaves objects with files of their own', async () => {
    await using f = await makeStorage()
    const { artifact } = await f.store('same', 'r', 'h')
    const names = join(f.root, 'names')
    await mkdir(names)
    // ext4 ends at 65,000; where there is no end the file is shared, and just as right.
    for (let i = 0; i < 65_000; i++) {
      try {
        linkSync(join(f.root, artifact.path), join(names, String(i)))
      } catch {
        break
      }
    }
    const full = (await readdir(names)).length < 65_000
    const second = await f.store('same', 'r', 'h', other)
    if (full) assert.equal((await stat(join(f.root, second.artifact.path))).nlink, 1)
    assert.equal(await f.storage.check(second.artifact), 'intact')
    assert.equal(await f.storage.check(artifact), 'intact')
    assert.deepEqual(await served(f, second.artifact.path), await served(f, artifact.path))
    for (const name of ['third', 'fourth']) {
      const options = { fileName: 'h', contentKey: 'same content' }
      const own = await f.storage.store(`gitrepository/${name}/app`, 'r', entriesOf({ 'a.txt': 'same' }), options)
      assert.equal(await f.storage.check(own.artifact), 'intact')
      assert.deepEqual(await served(f, own.artifact.path), await served(f, artifact.path))
    }
    assert.deepEqual(await readdir(join(f.root, '.openflux/tmp')), [])
  })
})
