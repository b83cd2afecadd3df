import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { lstat, mkdir, readdir, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { openStorage } from './storage.ts'
import { entriesOf, makeTempFolder } from '../test-support.ts'
import { folder, makeStorage } from './test-storage.ts'

async function names(path: string): Promise<string[]> {
  return (await readdir(path)).toSorted()
}

describe('storage', function () {
  this.timeout(60_000)

  it('stores an archive under its name, says what it is, and opens it again', async () => {
    await using f = await makeStorage()
    const { artifact, changed } = await f.storage.store(folder, 'main@sha1:abc', entriesOf({ 'a.txt': 'hello' }), {
      fileName: 'abc',
      metadata: { author: 'me' },
    })
    const bytes = await readFile(join(f.root, folder, 'abc.tar.gz'))
    assert.equal(changed, true)
    assert.deepEqual(artifact, {
      path: `${folder}/abc.tar.gz`,
      revision: 'main@sha1:abc',
      digest: `sha256:${createHash('sha256').update(bytes).digest('hex')}`,
      size: bytes.length,
      lastUpdateTime: '2026-01-02T03:04:05Z',
      metadata: { author: 'me' },
    })
    const opened = await f.storage.open(artifact.path)
    assert.ok(typeof opened === 'object')
    assert.deepEqual(opened.artifact, artifact)
    assert.deepEqual(await opened.handle.readFile(), bytes)
    await opened.handle.close()
    assert.ok(gunzipSync(bytes).includes('hello'))
    assert.equal(await f.storage.check(artifact), 'intact')
  })

  it('leaves nothing but the file, the log, the link, the blob and its id, closed to others', async () => {
    await using f = await makeStorage()
    const { artifact } = await f.store('one')
    assert.deepEqual(await names(join(f.root, folder)), ['.history.json', 'latest.tar.gz', 'one.tar.gz'])
    assert.deepEqual(await names(join(f.root, '.openflux')), ['blobs', 'id', 'tmp'])
    assert.deepEqual(await names(join(f.root, '.openflux/tmp')), [])
    assert.equal(await readlink(join(f.root, folder, 'latest.tar.gz')), 'one.tar.gz')
    const file = await stat(join(f.root, artifact.path))
    assert.deepEqual([file.mode & 0o777, file.nlink], [0o600, 2])
    assert.equal((await stat(join(f.root, folder))).mode & 0o777, 0o700)
  })

  it('changes nothing when the same bytes are stored again', async () => {
    await using f = await makeStorage()
    const first = await f.store('one')
    const inode = (await stat(join(f.root, first.artifact.path))).ino
    f.clock.ms += 60_000
    assert.deepEqual(await f.store('one'), { artifact: first.artifact, changed: false, droppedSymlinks: 0 })
    assert.equal((await stat(join(f.root, first.artifact.path))).ino, inode)
  })

  it('keeps the time, but takes over revision and metadata, when only these are new', async () => {
    await using f = await makeStorage()
    const first = await f.store('one', 'main@sha1:one')
    f.clock.ms += 60_000
    const { artifact, changed } = await f.storage.store(folder, 'v1@sha1:one', entriesOf({ 'a.txt': 'one' }), {
      fileName: 'one',
      metadata: { a: 'b' },
    })
    assert.deepEqual(
      { artifact, changed },
      {
        artifact: { ...first.artifact, revision: 'v1@sha1:one', metadata: { a: 'b' } },
        changed: false,
      },
    )
    assert.equal((await f.storage.find(folder, { revision: 'main@sha1:one' }))?.path, artifact.path)
  })

  it('gives other bytes of the same revision another name, so that an old digest never gets new bytes', async () => {
    await using f = await makeStorage()
    const first = await f.store('one', 'r', 'hash')
    const second = await f.store('two', 'r', 'hash')
    const hex = second.artifact.digest.slice('sha256:'.length)
    assert.equal(second.artifact.path, `${folder}/hash-${hex.slice(0, 8)}.tar.gz`)
    assert.equal(second.changed, true)
    assert.equal(await f.storage.check(first.artifact), 'intact')
    assert.equal((await f.store('one', 'r', 'hash')).artifact.path, first.artifact.path)
    assert.equal((await f.store('two', 'r', 'hash')).artifact.path, second.artifact.path)
  })

  it('never gives a name away that is on record, even while its file is missing', async () => {
    await using f = await makeStorage()
    const { artifact } = await f.store('one', 'r', 'hash')
    await rm(join(f.root, artifact.path))
    assert.notEqual((await f.store('two', 'r', 'hash')).artifact.path, artifact.path)
  })

  it('leaves a file alone that is in no log but may be in use, unless it is the very one', async () => {
    await using f = await makeStorage()
    const { artifact } = await f.store('one', 'r', 'hash')
    await rm(join(f.root, folder, '.history.json'))
    assert.equal(await f.storage.check(artifact), 'missing')
    assert.equal(await f.storage.open(artifact.path), undefined)
    assert.match((await f.store('two', 'r', 'hash')).artifact.path, /hash-[0-9a-f]{8}\.tar\.gz$/)
    assert.equal((await f.store('one', 'r', 'hash')).artifact.path, artifact.path)
    assert.equal(await f.storage.check(artifact), 'intact')
  })

  it('shares one inode between objects with the same bytes', async () => {
    await using f = await makeStorage()
    const paths = await Promise.all(
      Array.from(
        { length: 20 },
        async (_, i) => (await f.store('same', 'r', 'h', `gitrepository/team/app-${i}`)).artifact.path,
      ),
    )
    const stats = await Promise.all(paths.map((path) => stat(join(f.root, path))))
    assert.equal(new Set(stats.map(({ ino }) => ino)).size, 1)
    assert.equal(stats[0]?.nlink, 21)
  })

  it('uses the digest algorithm that it is told, and still knows what was stored with another', async () => {
    await using f = await makeStorage()
    const first = await f.store('one')
    const other = await openStorage({ root: f.root, digestAlgorithm: 'blake3' })
    assert.equal(await other.check(first.artifact), 'intact')
    const second = await other.store(folder, 'r2', entriesOf({ b: 'two' }), { fileName: 'two' })
    assert.match(second.artifact.digest, /^blake3:/)
    assert.equal(await f.storage.check(second.artifact), 'intact')
  })

  it('finds artifacts by revision, digest, time and as latest', async () => {
    await using f = await makeStorage({ retentionRecords: 10 })
    const a = (await f.store('a')).artifact
    f.clock.ms += 10_000
    const b = (await f.store('b')).artifact
    f.clock.ms += 10_000
    const again = (await f.store('a')).artifact
    assert.deepEqual(again, { ...a, lastUpdateTime: '2026-01-02T03:04:25Z' })
    const at = async (text: string): Promise<string | undefined> =>
      (await f.storage.find(folder, { time: new Date(text) }))?.revision
    assert.deepEqual(await f.storage.find(folder, 'latest'), again)
    assert.deepEqual(await f.storage.find(folder, { revision: b.revision }), b)
    assert.deepEqual(await f.storage.find(folder, { digest: a.digest }), again)
    assert.equal(await at('2026-01-02T03:04:04Z'), undefined, 'before the first')
    assert.equal(await at(a.lastUpdateTime), a.revision, 'its own time, in whole seconds')
    assert.equal(await at('2026-01-02T03:04:14.999Z'), a.revision)
    assert.equal(await at(b.lastUpdateTime), b.revision)
    assert.equal(await at('2026-01-02T03:04:24Z'), b.revision)
    assert.equal(await at('2026-01-02T03:04:25Z'), a.revision, 'A, B, A are three spans')
    assert.equal(await at('2036-01-01T00:00:00Z'), a.revision)
    assert.equal(await f.storage.find(folder, { revision: 'nope' }), undefined)
    assert.equal(await f.storage.find('gitrepository/team-a/other', 'latest'), undefined)
    assert.equal(await f.storage.find('../../etc', 'latest'), undefined)
    await rm(join(f.root, b.path))
    assert.equal(await f.storage.find(folder, { revision: b.revision }), undefined, 'no longer stored')
  })

  it('serves latest.tar.gz as the current file', async () => {
    await using f = await makeStorage()
    assert.equal(await f.storage.open(`${folder}/latest.tar.gz`), undefined)
    await f.store('one')
    const two = await f.store('two')
    const opened = await f.storage.open(`${folder}/latest.tar.gz`)
    assert.ok(typeof opened === 'object')
    assert.deepEqual(opened.artifact, two.artifact)
    await opened.handle.close()
  })

  const hostile = [
    '',
    '/',
    '..',
    '../x/y',
    'a/b',
    'a/b/c/d',
    'a//c',
    'a/../c',
    './b/c',
    'a/b/.',
    'A/b/c',
    'a/b_c/d',
    'a/b/c/',
    '/a/b',
  ].concat([
    'a/b/\0',
    'a/.openflux/c',
    '.openflux/tmp/x',
    'a/b/c\n',
    'a\\b/c/d',
    `a/b/${'x'.repeat(254)}`,
    'a/b/c..d',
    'a/-b/c',
    'a/b/%2e%2e',
  ])
  it('refuses folders that are not <kind>/<namespace>/<name>', async () => {
    await using f = await makeStorage()
    for (const bad of hostile) {
      await assert.rejects(f.store('x', 'r', 'h', bad), { reason: 'InvalidPath' }, bad)
      await assert.rejects(f.storage.collectGarbage(bad), { reason: 'InvalidPath' }, bad)
      assert.equal(await f.storage.find(bad, 'latest'), undefined)
    }
    assert.deepEqual(await names(f.root), ['.openflux'])
  })

  it('refuses file names that could be anything else', async () => {
    await using f = await makeStorage()
    for (const bad of ['', '.', '..', '../x', 'a/b', '.x', 'latest', 'a\0', 'a b', 'a\n', 'ä', 'x'.repeat(101)]) {
      await assert.rejects(f.store('x', 'r', bad), { reason: 'InvalidPath' }, JSON.stringify(bad))
    }
    await f.store('x', 'r', 'sha256:a.b_c+d@e=f-g')
  })

  it('opens, checks and discards nothing outside of it', async () => {
    await using f = await makeStorage()
    await f.store('one')
    await writeFile(join(f.root, folder, 'stray.tar.gz'), 'stray')
    const outside = hostile.map((bad) => `${bad}/one.tar.gz`)
    for (const path of [
      ...outside,
      `${folder}/.history.json`,
      `${folder}/../app/one.tar.gz`,
      `${folder}/stray.tar.gz`,
      folder,
      '',
    ]) {
      assert.equal(await f.storage.open(path), undefined, path)
      assert.equal(await f.storage.check({ path, digest: `sha256:${'0'.repeat(64)}` }), 'missing', path)
      await f.storage.discard(path)
    }
    assert.deepEqual(await names(join(f.root, folder)), [
      '.history.json',
      'latest.tar.gz',
      'one.tar.gz',
      'stray.tar.gz',
    ])
  })

  it('refuses to write through a link that somebody has put in the way', async () => {
    await using f = await makeStorage()
    await using elsewhere = await makeTempFolder()
    await mkdir(join(f.root, 'gitrepository'))
    await symlink(elsewhere.path, join(f.root, 'gitrepository/team-a'))
    await assert.rejects(f.store('x'), { reason: 'DirectoryCreationFailed', message: /is not a folder$/ })
    assert.deepEqual(await names(elsewhere.path), [])
  })

  it('says that a folder cannot be made, keeps what it had, and recovers', async () => {
    await using f = await makeStorage()
    await writeFile(join(f.root, 'bucket'), 'in the way')
    await assert.rejects(f.store('x', 'r', 'h', 'bucket/a/b'), { reason: 'DirectoryCreationFailed' })
    assert.deepEqual(await names(join(f.root, '.openflux/tmp')), [])
    await rm(join(f.root, 'bucket'))
    await f.store('x', 'r', 'h', 'bucket/a/b')
  })

  it('leaves no trace of a store that fails or is aborted', async () => {
    await using f = await makeStorage()
    const { artifact } = await f.store('one')
    const failing = [{ path: 'a', mode: 0, sizeBytes: 1, open: () => Promise.reject(new Error('gone')) }]
    await assert.rejects(f.storage.store(folder, 'r2', failing, { fileName: 'two' }), {
      reason: 'ArchiveOperationFailed',
    })
    const signal = AbortSignal.abort(new Error('lost the lease'))
    await assert.rejects(f.storage.store(folder, 'r3', entriesOf({ a: '' }), { fileName: 'three', signal }), {
      message: 'lost the lease',
    })
    assert.deepEqual(await names(join(f.root, folder)), ['.history.json', 'latest.tar.gz', 'one.tar.gz'])
    assert.deepEqual(await names(join(f.root, '.openflux/tmp')), [])
    assert.deepEqual(await f.storage.find(folder, 'latest'), artifact)
  })

  it('survives that everything is deleted under its feet, and keeps its id', async () => {
    await using f = await makeStorage()
    const { artifact } = await f.store('one')
    await rm(f.root, { recursive: true })
    assert.equal(await f.storage.check(artifact), 'missing')
    assert.deepEqual(await f.storage.patrol(), [artifact.path])
    assert.deepEqual((await f.store('one')).artifact, artifact)
    assert.deepEqual(await f.storage.patrol(), [])
    await f.storage.sweep('gitrepository', () => true)
    assert.equal((await openStorage({ root: f.root })).id, f.storage.id)
  })

  it('ignores a damaged log: what it named is rebuilt', async () => {
    const texts = ['', '{', 'null', '[]', '{"version":1}', '{"version":1,"entries":[null]}', '\0'.repeat(100)]
    for (const text of texts) {
      await using f = await makeStorage()
      const { artifact } = await f.store('one')
      await writeFile(join(f.root, folder, '.history.json'), text)
      assert.equal(await f.storage.check(artifact), 'missing', text)
      assert.equal((await f.store('one')).artifact.path, artifact.path)
      assert.equal(await f.storage.check(artifact), 'intact', text)
    }
  })

  it('does not believe a log that names files elsewhere', async () => {
    await using f = await makeStorage()
    const { artifact } = await f.store('one')
    const file = join(f.root, folder, '.history.json')
    const log = await readFile(file, 'utf8')
    await writeFile(file, log.replace('"one.tar.gz"', '"../../../etc/passwd.tar.gz"'))
    assert.equal(await f.storage.find(folder, 'latest'), undefined)
    assert.equal(await f.storage.check(artifact), 'missing')
  })

  it('puts right a log or link that is something else', async () => {
    await using f = await makeStorage()
    await f.store('one')
    for (const name of ['.history.json', 'latest.tar.gz', 'one.tar.gz']) {
      await rm(join(f.root, folder, name))
      await mkdir(join(f.root, folder, name, 'full'), { recursive: true })
      const { artifact } = await f.store('one')
      assert.equal(await f.storage.check(artifact), 'intact', name)
    }
    assert.ok((await lstat(join(f.root, folder, 'latest.tar.gz'))).isSymbolicLink())
  })
})
