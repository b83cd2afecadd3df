import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdir, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Repository } from '../../../e2e/git-server.ts'
import { StalledError } from '../../runtime/errors.ts'
import { eventually } from '../../runtime/eventually.ts'
import { anonymous } from '../access/access.ts'
import type { Mirrors } from '../mirror/mirrors.ts'
import { failureOf, openStage, readAll, type Stage } from '../test-support.ts'
import { openContent } from './content.ts'
import { readObject } from './reading.ts'
import { scopeDigest } from './scope.ts'
import { outermost, sparsePathsOf } from './sparse.ts'

describe('the paths of a sparse checkout', () => {
  it('are compared by what they mean, not by how they are written or in which order', () => {
    assert.deepEqual(sparsePathsOf(['./b/', 'a//x/./y', 'b']), ['a/x/y', 'b'])
    for (const everything of [undefined, [], ['a', '.'], ['./'], ['']])
      assert.equal(sparsePathsOf(everything), undefined)
    assert.deepEqual(outermost(['a', 'a b', 'a/x', 'a/x/y', 'ab', 'b/c']), ['a', 'a b', 'ab', 'b/c'])
  })

  const refused: [string, RegExp][] = [
    ['../x', /contains '\.\.'$/],
    ['a/../../x', /contains '\.\.'$/],
    ['/etc', /must not be absolute$/],
    ['-c', /must not start with '-'$/],
    ['a\\b', /backslash$/],
    ['a\0b', /control character$/],
    ['a\nb', /control character$/],
    ['\ud800', /control character$/],
    ['x'.repeat(4097), /longer than 4096 bytes$/],
  ]
  for (const [entry, why] of refused) {
    it(`are not ${JSON.stringify(entry.slice(0, 20))}`, () => {
      assert.throws(
        () => sparsePathsOf(['ok', entry]),
        (err) =>
          err instanceof StalledError &&
          err.message.startsWith('invalid spec.sparseCheckout[1]: ') &&
          why.test(err.message),
      )
    })
  }

  it('are limited in number and in size', () => {
    assert.throws(() => sparsePathsOf(Array.from({ length: 1001 }, (_, i) => `${i}`)), /1001 entries, at most 1000/)
    assert.throws(() => sparsePathsOf(Array.from({ length: 20 }, (_, i) => `${i}`.padEnd(4000, 'x'))), /65536 bytes/)
  })
})

describe('a sparse checkout', function () {
  this.timeout(120_000)
  let stage: Stage
  let repository: Repository
  let sha: string
  let cache = 0
  let signal: AbortSignal

  beforeEach(() => {
    signal = AbortSignal.timeout(120_000)
  })

  before(async () => {
    stage = await openStage()
    repository = await stage.server.repository('app.git')
    sha = await repository.commit(
      {
        'root.txt': 'root',
        'dir1/a': 'a',
        'dir1/sub/b': 'b',
        'dir10/c': 'c',
        'x/dir1': 'file',
        '*/glob': 'glob',
        ':(top)x/d': 'magic',
        '-c/x': 'dash',
        ...Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`big/${i}`, randomBytes(20_000)])),
      },
      'first',
    )
    for (const branch of ['next', 'here', 'many']) await repository.branch(branch, sha)
  })
  after(() => stage.close())
  beforeEach(() => {
    Object.assign(stage.server.behaviour, { protocolV2: true, modern: true })
    stage.warnings.length = 0
  })

  const fresh = () => stage.open({ cacheFolder: join(stage.folder, `cache-${cache++}`) })

  const open = (mirrors: Mirrors, sparse: string[], commit = sha) =>
    openContent({ mirror: mirrors.mirrorFor(`${stage.server.url}/app.git`, anonymous), sha: commit, sparse, signal })

  async function filesOf(sparse: string[], { mirrors = fresh(), commit = sha } = {}) {
    const content = await open(mirrors, sparse, commit)
    try {
      return await readAll(content.entries)
    } finally {
      await content.close()
    }
  }

  for (const [what, behaviour] of [
    ['that leaves files out', {}],
    ['of version 0 that leaves files out', { protocolV2: false }],
    ['that cannot leave files out', { modern: false }],
    ['of version 0 that cannot leave files out', { modern: false, protocolV2: false }],
  ] as const) {
    it(`holds what is at and below its paths, from a server ${what}`, async () => {
      Object.assign(stage.server.behaviour, behaviour)
      const mirrors = fresh()
      assert.deepEqual(await filesOf(['dir1'], { mirrors }), { 'dir1/a': 'a', 'dir1/sub/b': 'b' })
      assert.deepEqual(await filesOf(['./x/'], { mirrors }), { 'x/dir1': 'file' })
      assert.deepEqual(await filesOf(['dir1/sub', 'root.txt', 'dir1'], { mirrors }), {
        'dir1/a': 'a',
        'dir1/sub/b': 'b',
        'root.txt': 'root',
      })
      assert.deepEqual(await filesOf(['*', ':(top)x'], { mirrors }), { '*/glob': 'glob', ':(top)x/d': 'magic' })
      assert.equal(Object.keys(await filesOf(['.'], { mirrors })).length, 208)
    })
  }

  it('costs the bytes of what it holds, not those of the repository', async () => {
    const mirrors = fresh()
    stage.server.reset()
    await filesOf(['dir1'], { mirrors })
    const first = stage.server.requests().bytesOut
    assert.ok(first < 20_000, `${first} bytes of more than 4,000,000`)
    stage.server.reset()
    await filesOf(['dir1'], { mirrors })
    assert.equal(stage.server.requests().requests, 0)
    // Another process only asks whether it may have what is there.
    await filesOf(['dir1/sub'], { mirrors: stage.open({ cacheFolder: join(stage.folder, `cache-${cache - 1}`) }) })
    assert.ok(stage.server.requests().bytesOut < 1000)
    const next = await repository.commit({ 'dir1/a': 'new', 'big/0': randomBytes(20_000) }, 'next', { branch: 'next' })
    assert.equal((await filesOf(['dir1'], { mirrors, commit: next }))['dir1/a'], 'new')
    const second = stage.server.requests().bytesOut
    assert.ok(second < 20_000, `${second} bytes for one line`)
  })

  it('downloads nothing for those who have the whole commit already', async () => {
    const mirrors = fresh()
    await filesOf([], { mirrors })
    stage.server.reset()
    await filesOf(['big'], { mirrors })
    assert.equal(stage.server.requests().requests, 0)
  })

  it('shares one download among all who want the same', async () => {
    const mirrors = fresh()
    const before = (await stage.processes()).length
    const all = await Promise.all(Array.from({ length: 20 }, () => filesOf(['dir1'], { mirrors })))
    assert.ok(all.every((files) => files['dir1/a'] === 'a'))
    const fetches = (await stage.processes()).slice(before).filter((line) => / fetch /.test(line))
    assert.equal(fetches.length, 2, 'folders, then files')
  })

  it('does not fetch files for those who want to read a tag', async () => {
    await repository.tag('v1', { target: sha, message: 'annotated' })
    const mirror = fresh().mirrorFor(`${stage.server.url}/app.git`, anonymous)
    const oid = (await repository.git(['rev-parse', 'v1'])).trim()
    stage.server.reset()
    const tag = await readObject({ mirror, sha: oid, ref: 'refs/tags/v1', partial: true, signal }, 'tag')
    assert.match(tag.toString(), new RegExp(`^object ${sha}\n`))
    assert.ok(stage.server.requests().bytesOut < 20_000)
  })

  it('fails for a path that is not there, and names it', async () => {
    const mirrors = fresh()
    for (const path of ['dir', 'dir1/a/b', 'dir1/c', 'DIR1', 'dir1*']) {
      const err = await failureOf(filesOf(['dir1', path], { mirrors }))
      assert.equal(err.reason, 'GitOperationFailed')
      const start = `failed to sparse checkout directories : sparse checkout dir '${path}' does not exist in repository: `
      assert.ok(err.message.startsWith(start), err.message)
    }
  })

  it('has an identity of its own, which commits elsewhere do not change', async () => {
    const mirrors = fresh()
    const here = await repository.commit({ 'dir1/a': 'new' }, 'here', { branch: 'here' })
    const elsewhere = await repository.commit({ 'root.txt': 'new', 'dir10/c': null }, 'elsewhere', { branch: 'here' })
    const digestOf = (commit: string, sparse: string[]) => {
      const mirror = mirrors.mirrorFor(`${stage.server.url}/app.git`, anonymous)
      return scopeDigest({ mirror, sha: commit, ref: 'refs/heads/here', signal }, sparse)
    }
    assert.equal(await digestOf(here, ['dir1', 'x']), await digestOf(elsewhere, ['x/', './dir1']))
    assert.notEqual(await digestOf(here, ['dir1']), await digestOf(elsewhere, ['dir1', 'x']))
    assert.notEqual(await digestOf(here, ['root.txt']), await digestOf(elsewhere, ['root.txt']))
    const processes = (await stage.processes()).length
    await digestOf(elsewhere, ['dir1', 'x'])
    assert.equal((await stage.processes()).length, processes, 'a process for what is known')
    assert.match((await failureOf(digestOf(elsewhere, ['dir10']))).message, /'dir10' does not exist/)
    const keys = await Promise.all(
      [here, elsewhere].map(async (commit) => {
        const content = await open(mirrors, ['dir1'], commit)
        await content.close()
        return content.contentKey
      }),
    )
    assert.equal(keys[0], keys[1], 'two archives for the same files')
  })

  it('is made anew where its mirror is damaged', async () => {
    const mirrors = fresh()
    const folder = join(stage.folder, `cache-${cache - 1}`, 'mirrors')
    const good = await filesOf(['dir1'], { mirrors })
    const [name = ''] = await readdir(folder)
    const packs = join(folder, name, 'partial.git/objects/pack')
    for (const damage of [(path: string) => rm(path), (path: string) => writeFile(path, 'x', { flag: 'r+' })]) {
      for (const file of (await readdir(packs)).filter((f) => f.endsWith('.pack'))) {
        await stage.run('chmod', ['u+w', join(packs, file)])
        await damage(join(packs, file))
      }
      stage.warnings.length = 0
      const files = await filesOf(['dir1'], { mirrors }).catch((err: Error) => err)
      if (!(files instanceof Error)) assert.deepEqual(files, good)
      assert.deepEqual(await filesOf(['dir1'], { mirrors }), good)
      assert.equal(stage.warnings.length, 1, stage.warnings.join('\n'))
    }
  })

  it('stays in a few packs, with all that is used', async () => {
    const mirrors = stage.open({ cacheFolder: join(stage.folder, 'many'), maxPacks: 4 })
    const folder = join(stage.folder, 'many/mirrors')
    for (let i = 0; i < 5; i++) {
      const commit = await repository.commit({ 'dir1/a': `${i}` }, `${i}`, { branch: 'many' })
      assert.equal((await filesOf(['dir1'], { mirrors, commit }))['dir1/a'], `${i}`)
    }
    const [name = ''] = await readdir(folder)
    await eventually(async () => {
      const files = await readdir(join(folder, name, 'partial.git/objects/pack'))
      return files.filter((file) => file.endsWith('.pack')).length <= 4
    })
    assert.deepEqual(Object.keys(await filesOf(['dir1'], { mirrors })), ['dir1/a', 'dir1/sub/b'])
    await assert.rejects(stat(join(folder, name, 'repository.git')), /ENOENT/)
    assert.deepEqual(stage.warnings, [])
  })

  it('ends at the limit of a repository too', async () => {
    const mirrors = stage.open({ cacheFolder: join(stage.folder, 'small'), maxRepositoryBytes: 1_000_000 })
    assert.deepEqual(await filesOf(['dir1/sub'], { mirrors }), { 'dir1/sub/b': 'b' })
    assert.match((await failureOf(filesOf(['big'], { mirrors }))).message, /larger than 1000000 bytes/)
    assert.deepEqual(await filesOf(['dir1/sub'], { mirrors }), { 'dir1/sub/b': 'b' })
  })
})
