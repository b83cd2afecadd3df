import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import type { RawEntry, Repository } from '../../../e2e/git-repository.ts'
import { writeArchive } from '../../artifact/archive/archive.ts'
import type { Entry } from '../../artifact/entry.ts'
import { anonymous, basicAccess } from '../access/access.ts'
import type { ListingLimits } from './listing.ts'
import { failureOf, openStage, readAll, wholeOf, type Stage } from '../test-support.ts'
import { openContent, type Content } from './content.ts'

describe('the files of a commit', function () {
  this.timeout(120_000)
  let stage: Stage
  let repository: Repository
  const open: Content[] = []

  before(async () => {
    stage = await openStage()
    repository = await stage.server.repository('app.git')
  })
  after(() => stage.close())
  afterEach(async () => {
    for (const content of open.splice(0)) await content.close()
  })

  async function contentOf(
    sha: string,
    signal = AbortSignal.timeout(60_000),
    limits?: ListingLimits,
    mirrors = stage.mirrors,
  ): Promise<Content> {
    const mirror = mirrors.mirrorFor(`${stage.server.url}/app.git`, anonymous)
    const content = await openContent({ mirror, sha, limits, signal })
    open.push(content)
    return content
  }

  const entriesOf = async (...args: Parameters<typeof contentOf>): Promise<Entry[]> => {
    const entries: Entry[] = []
    for await (const entry of (await contentOf(...args)).entries) entries.push(entry)
    return entries
  }

  const processesOfKind = async (kind: RegExp) => (await stage.processes()).filter((line) => kind.test(line)).length

  it('are handed out without credentials only while the server still asks for none, also where they are there already', async () => {
    const sha = await repository.commit({ 'a.txt': 'a' }, 'public', { branch: 'public' })
    await contentOf(sha)
    stage.server.behaviour.auth = { user: 'me', password: 'hunter2' }
    try {
      // Another process finds the commit in the cache.
      const err = await failureOf(contentOf(sha, undefined, undefined, stage.open()))
      assert.match(err.message, /authentication required/)
    } finally {
      stage.server.behaviour.auth = undefined
    }
    await contentOf(sha, undefined, undefined, stage.open())
  })

  it('come with path, type, mode, size and content; submodules are counted', async () => {
    const sha = await repository.commit(
      {
        'a.txt': 'a',
        'dir/ü ber "x"\t.txt': Buffer.from([0, 1, 2, 0xff, 10]),
        'dir/run': { content: '', mode: 0o755 },
        link: { symlink: '/etc/passwd' },
        'dir/up': { symlink: '../..' },
        sub: { submodule: '1'.repeat(40) },
      },
      'first',
    )
    const content = await contentOf(sha)
    const entries: Entry[] = []
    for await (const entry of content.entries) entries.push(entry)
    assert.deepEqual(
      entries.map(({ path, type, mode, sizeBytes }) => ({ path, type, mode, sizeBytes })),
      [
        { path: 'a.txt', type: 'file', mode: 0o644, sizeBytes: 1 },
        { path: 'dir/run', type: 'file', mode: 0o755, sizeBytes: 0 },
        { path: 'dir/up', type: 'symlink', mode: 0o644, sizeBytes: 5 },
        { path: 'dir/ü ber "x"\t.txt', type: 'file', mode: 0o644, sizeBytes: 5 },
        { path: 'link', type: 'symlink', mode: 0o644, sizeBytes: 11 },
      ],
    )
    assert.equal(content.leftOut, 1)
    assert.deepEqual(await wholeOf(await entries[3]!.open()), Buffer.from([0, 1, 2, 0xff, 10]))
    assert.equal((await wholeOf(await entries[4]!.open())).toString(), '/etc/passwd')
  })

  it('are known by their id and by whose credentials gave them', async () => {
    const sha = await repository.commit({ 'a.txt': 'same', 'b.txt': 'same', 'c.txt': 'other' }, 'ids', { orphan: true })
    const [a, b, c] = await entriesOf(sha)
    assert.equal(a!.contentId, b!.contentId)
    assert.notEqual(a!.contentId, c!.contentId)
    assert.match(a!.contentId!, /^[0-9a-f]{40}:[0-9a-f]{40}$/)
    const other = stage.mirrors.mirrorFor(`${stage.server.url}/app.git`, basicAccess('me', 'secret'))
    const content = await openContent({
      mirror: other,
      sha,
      signal: AbortSignal.timeout(60_000),
    })
    open.push(content)
    assert.notEqual(content.contentKey, (await contentOf(sha)).contentKey)
    for await (const entry of content.entries) assert.ok(![a!.contentId, c!.contentId].includes(entry.contentId))
  })

  it('are the same for commits with the same files', async () => {
    const sha = await repository.commit({ 'a.txt': 'same' }, 'one', { orphan: true })
    const empty = await repository.commit({}, 'nothing new')
    const next = await repository.commit({ 'a.txt': 'new' }, 'something new')
    const { contentKey } = await contentOf(sha)
    assert.equal((await contentOf(empty)).contentKey, contentKey)
    assert.notEqual((await contentOf(next)).contentKey, contentKey)
  })

  it('cost a hundred users one process until one of them reads', async () => {
    const sha = await repository.commit({ 'a.txt': 'a' }, 'shared', { orphan: true })
    const mirrors = stage.open({ cacheFolder: `${stage.folder}/shared` })
    const before = (await stage.processes()).length
    const contents = await Promise.all(Array.from({ length: 100 }, () => contentOf(sha, undefined, undefined, mirrors)))
    assert.equal(contents[99]!.commit.subject, 'shared')
    assert.equal(new Set(contents.map((content) => content.contentKey)).size, 1)
    const started = (await stage.processes())
      .slice(before)
      .map((line) => line.replace(/^.*?(?=(?:init|fetch|cat-file)\b)/, ''))
    assert.deepEqual(
      started.map((line) => line.split(' ')[0]),
      ['init', 'fetch', 'cat-file'],
    )
    assert.deepEqual(await readAll(contents[50]!.entries), { 'a.txt': 'a' })
    assert.equal((await stage.processes()).length, before + 5)
  })

  it('come in the order in which they are asked for, small and large, through one process', async () => {
    const contents = Array.from({ length: 200 }, (_, i) => randomBytes(i % 50 === 0 ? 3_000_000 : i * 100))
    const sha = await repository.commit(Object.fromEntries(contents.map((c, i) => [`${i}`, c])), 'many', {
      orphan: true,
    })
    const before = await processesOfKind(/cat-file --batch/)
    const entries = await entriesOf(sha)
    const asked = entries.toReversed().map((entry) => ({ entry, body: entry.open() }))
    for (const { entry, body } of asked) {
      const content = await body
      assert.equal(Buffer.isBuffer(content), entry.sizeBytes <= 1024 * 1024)
      assert.ok((await wholeOf(content)).equals(contents[Number(entry.path)]!), entry.path)
    }
    assert.equal(await processesOfKind(/cat-file --batch/), before + 2, 'one for the commit, one for its files')
  })

  it('do not wait for a large one that nobody wants to read to its end', async () => {
    const sha = await repository.commit({ 'a.bin': randomBytes(5_000_000), 'b.txt': 'b' }, 'large', { orphan: true })
    const [large, small] = await entriesOf(sha)
    const stream = await large!.open()
    assert.ok(stream instanceof Readable)
    const next = small!.open()
    stream.destroy()
    assert.equal((await wholeOf(await next)).toString(), 'b')
  })

  it('end with the signal, and with being closed', async () => {
    const sha = await repository.commit({ 'a.bin': randomBytes(5_000_000), 'b.txt': 'b' }, 'again', { orphan: true })
    const abort = new AbortController()
    const [first, second] = await entriesOf(sha, abort.signal)
    const stream = await first!.open()
    const waiting = failureOf(second!.open())
    abort.abort()
    await assert.rejects(wholeOf(stream), /aborted/)
    assert.match((await waiting).message, /aborted/)
    const [closed, other] = await entriesOf(sha)
    await closed!.open()
    const pending = other!.open()
    await Promise.all([assert.rejects(pending, /closed/), open.at(-1)!.close()])
    await assert.rejects(closed!.open(), /closed/)
  })

  it('hold nothing any more where they are closed while their mirror is made anew', async () => {
    const sha = await repository.commit({ 'a.txt': 'a' }, 'held', { branch: 'held' })
    const cacheFolder = join(stage.folder, 'held')
    const mirror = stage.open({ cacheFolder }).mirrorFor(`${stage.server.url}/app.git`, anonymous)
    const content = await openContent({ mirror, sha, ref: 'refs/heads/held', signal: AbortSignal.timeout(60_000) })
    const packs = join(cacheFolder, 'mirrors', mirror.key, 'repository.git/objects/pack')
    for (const name of await readdir(packs)) await rm(join(packs, name))
    const fetchCommit = mirror.fetchCommit.bind(mirror)
    mirror.fetchCommit = async (...args) => {
      const lease = await fetchCommit(...args)
      setImmediate(() => void content.close())
      return lease
    }
    await assert.rejects(readAll(content.entries), /closed/)
    assert.equal(mirror.isInUse, false)
    assert.equal(stage.warnings.splice(0).length, 1)
  })

  it('are refused where there are too many, however small the repository is', async () => {
    let oid = (await repository.git(['hash-object', '-w', '--stdin'], 'x')).trim()
    for (let level = 0; level < 10; level++) {
      const mode = level === 0 ? '100644 blob' : '040000 tree'
      const rows = Array.from({ length: 10 }, (_, i) => `${mode} ${oid}\t${i}\n`)
      oid = (await repository.git(['mktree'], rows.join(''))).trim()
    }
    const sha = (
      await repository.git(['-c', 'user.name=x', '-c', 'user.email=x', 'commit-tree', '-m', 'bomb', oid])
    ).trim()
    await repository.branch('bomb', sha)
    const err = await failureOf(entriesOf(sha, undefined, { maxFiles: 50_000, maxPathBytes: 1e9 }))
    assert.equal(err.reason, 'TooManyFiles')
    assert.match(err.message, /more than 50000 files/)
    assert.match(
      (await failureOf(entriesOf(sha, undefined, { maxFiles: 1e9, maxPathBytes: 100_000 }))).message,
      /100000 bytes of paths/,
    )
  })

  const hostile: [string, RawEntry[]][] = [
    ['../x', [{ mode: '100644', name: '../x', content: 'evil' }]],
    ['..', [{ mode: '100644', name: '..', content: 'evil' }]],
    ['.git', [{ mode: '100644', name: '.git', content: 'evil' }]],
    ['.GIT', [{ mode: '100644', name: '.GIT', content: 'evil' }]],
    ['git~1', [{ mode: '100644', name: 'git~1', content: 'evil' }]],
    ['an absolute path', [{ mode: '100644', name: '/etc/passwd', content: 'evil' }]],
    ['a backslash', [{ mode: '100644', name: '..\\x', content: 'evil' }]],
    ['an empty name', [{ mode: '100644', name: '', content: 'evil' }]],
    ['a name that is no UTF-8', [{ mode: '100644', name: Buffer.from([0x61, 0xff]), content: 'evil' }]],
    [
      'a name twice',
      [
        { mode: '100644', name: 'a', content: '1' },
        { mode: '100644', name: 'a', content: '2' },
      ],
    ],
    ['5,000 characters', [{ mode: '100644', name: 'x'.repeat(5000), content: 'evil' }]],
  ]
  for (const [what, entries] of hostile) {
    it(`end in a clear error for a tree with ${what}`, async () => {
      const sha = await repository.rawTree(entries, 'hostile', { branch: 'hostile', orphan: true })
      const archive = async () => {
        const { entries: files } = await contentOf(sha)
        await writeArchive(files, createWriteStream('/dev/null'), { digestAlgorithm: 'sha256' })
      }
      const err = await failureOf(archive())
      assert.match(err.reason, /^(?:GitOperationFailed|ArchiveOperationFailed)$/)
      assert.ok(err.message.length < 1000)
      assert.doesNotMatch(err.message, /\p{Cc}/u)
    })
  }

  it('do not exist where a tag leads to something else, which is no damage', async () => {
    const blob = (await repository.git(['hash-object', '-w', '--stdin'], 'no commit')).trim()
    await repository.tag('blob', { target: blob })
    const err = await failureOf(contentOf(blob))
    assert.match(err.message, /object [0-9a-f]{40} is a blob, not a commit$/)
    await failureOf(contentOf(blob))
    assert.deepEqual(stage.warnings, [])
  })

  it('keep names apart that differ only in bytes that are no UTF-8', async () => {
    const entries = [0xfe, 0xff].map((byte) => ({ mode: '100644', name: Buffer.from([0x61, byte]), content: 'x' }))
    const sha = await repository.rawTree(entries, 'latin', { branch: 'latin', orphan: true })
    const paths = (await entriesOf(sha)).map((entry) => entry.path)
    assert.equal(new Set(paths).size, 2)
    assert.ok(paths.every((path) => !path.isWellFormed()))
  })

  it('are those of the commit, byte for byte', async () => {
    const sha = await repository.commit({ 'a.txt': 'a\r\n', '.gitattributes': '* text eol=lf', 'x/b': 'b' }, 'plain', {
      orphan: true,
    })
    const files = await readAll((await contentOf(sha)).entries)
    for (const [path, content] of Object.entries(files)) {
      const oid = createHash('sha1')
        .update(`blob ${Buffer.byteLength(content)}\0${content}`)
        .digest('hex')
      assert.equal(oid, (await repository.git(['rev-parse', `${sha}:${path}`])).trim())
    }
    assert.deepEqual(Object.keys(files), ['.gitattributes', 'a.txt', 'x/b'])
  })
})
