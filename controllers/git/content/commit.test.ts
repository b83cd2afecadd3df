import assert from 'node:assert/strict'
import type { Repository } from '../../../e2e/git-server.ts'
import { makeRandom } from '../../artifact/test-support.ts'
import { accessFromSecret, anonymous } from '../access/access.ts'
import { failureOf, openStage, type Stage } from '../test-support.ts'
import { parseCommit, type CommitInfo } from './commit.ts'
import { readCommit, readObject } from './reading.ts'

const tree = 'a'.repeat(40)

function commitOf(message: string, headers: string[] = []): Buffer {
  const who = ['author Ä Author <a@example.com> 1700000001 +0100', 'committer C <c@example.com> 1700000002 -0830']
  return Buffer.from([`tree ${tree}`, ...headers, ...who, '', message].join('\n'))
}

describe('what a commit says', () => {
  it('is its tree, its parents, who wrote it and when, and why', () => {
    const parents = ['b'.repeat(40), 'c'.repeat(40)]
    const info = parseCommit(
      commitOf(
        'subject\n\nbody\nmore\n',
        parents.map((sha) => `parent ${sha}`),
      ),
    )
    assert.deepEqual(info, {
      tree,
      parents,
      author: 'Ä Author <a@example.com>',
      authoredAt: 1_700_000_001,
      committedAt: 1_700_000_002,
      subject: 'subject',
      message: 'subject\n\nbody\nmore',
    })
  })

  it('is not what only looks like a header', () => {
    const signature = `gpgsig -----BEGIN SSH SIGNATURE-----\n tree ${'f'.repeat(40)}\n author Eve <e> 1 +0000\n -----END`
    const info = parseCommit(commitOf(`x\n\ntree ${'e'.repeat(40)}\nauthor Eve <e> 1 +0000`, [signature]))
    assert.deepEqual([info.tree, info.author, info.parents], [tree, 'Ä Author <a@example.com>', []])
    assert.throws(() => parseCommit(Buffer.from(`author x <y> 1 +0000\n\ntree ${tree}`)), /names no tree/)
  })

  it('is fit to be shown, however long and odd it is', () => {
    const info = parseCommit(
      commitOf(`\n\n${'ü'.repeat(60)}\u001b[31m\0\u202e\r\n\tbody\u0007 \n${'y'.repeat(900_000)}`),
    )
    assert.equal(info.subject, `${'ü'.repeat(50)}...`)
    assert.equal(info.message.length, 1003)
    assert.match(info.message, /^ü{60} \[31m\n body\n(?:y)+\.\.\.$/)
    assert.doesNotMatch(parseCommit(commitOf('a\tb\u2028c\ud800')).message, /[^\P{C}\n]/u)
  })

  it('is bounded for any bytes at all', () => {
    const seed = Date.now() % 2 ** 32
    console.log(`      seed ${seed}`)
    const random = makeRandom(seed)
    const parts = [
      commitOf('subject\n\nbody'),
      Buffer.from('\n\n'),
      Buffer.from('author \u001b> 1 +0000\n'),
      Buffer.from([0, 0xff, 13]),
    ]
    for (let i = 0; i < 5000; i++) {
      const bytes = Buffer.concat(Array.from({ length: 1 + random(6) }, () => parts[random(parts.length)]!))
      for (let flips = random(8); flips > 0; flips--) bytes[random(bytes.length)] = random(256)
      let info: CommitInfo
      try {
        info = parseCommit(bytes)
      } catch (err) {
        assert.match(String(err), /names no tree/)
        continue
      }
      const texts = [info.author, info.subject, info.message.replaceAll('\n', '')]
      assert.ok(texts.every((text) => !/\p{C}/u.test(text)) && Number.isSafeInteger(info.committedAt))
    }
  })

  it('is empty where it cannot be read', () => {
    const info = parseCommit(Buffer.from(`tree ${tree}\nauthor nobody\ncommitter <x> soon\n`))
    assert.deepEqual([info.author, info.authoredAt, info.committedAt, info.subject, info.message], ['', 0, 0, '', ''])
  })
})

describe('reading a commit or a tag', function () {
  this.timeout(60_000)
  let stage: Stage
  let repository: Repository
  let sha: string
  let signal: AbortSignal

  beforeEach(() => {
    signal = AbortSignal.timeout(60_000)
  })

  before(async () => {
    stage = await openStage()
    repository = await stage.server.repository('app.git')
    sha = await repository.commit({ 'a.txt': 'a' }, 'first')
    await repository.tag('v1', { message: 'annotated' })
  })
  after(() => stage.close())

  const mirrorOf = (access = anonymous, mirrors = stage.mirrors) =>
    mirrors.mirrorFor(`${stage.server.url}/app.git`, access)

  it('gives the bytes that its id was made of, and a second time without a process', async () => {
    const oid = (await repository.git(['rev-parse', 'v1'])).trim()
    for (const [id, type] of [
      [sha, 'commit'],
      [oid, 'tag'],
    ] as const) {
      const content = await readObject({ mirror: mirrorOf(), sha: id, ref: 'refs/tags/v1', signal }, type)
      assert.equal(content.toString(), await repository.git(['cat-file', type, id]))
      const processes = (await stage.processes()).length
      assert.equal(await readObject({ mirror: mirrorOf(), sha: id, ref: 'refs/tags/v1', signal }, type), content)
      assert.equal((await stage.processes()).length, processes)
    }
    assert.equal((await readCommit({ mirror: mirrorOf(), sha, ref: 'refs/tags/v1', signal })).subject, 'first')
  })

  it('gets a tag from a server that gives nothing but what it advertises', async () => {
    const oid = (await repository.git(['rev-parse', 'v1'])).trim()
    Object.assign(stage.server.behaviour, { protocolV2: false, modern: false })
    try {
      const mirror = mirrorOf(anonymous, stage.open({ cacheFolder: `${stage.folder}/old` }))
      const content = await readObject({ mirror, sha: oid, ref: 'refs/tags/v1', signal }, 'tag')
      assert.match(content.toString(), new RegExp(`^object ${sha}\n[^]*\n\nannotated\n$`))
    } finally {
      Object.assign(stage.server.behaviour, { protocolV2: true, modern: true })
    }
  })

  it('fails for an object of another type, and for one of more than a megabyte', async () => {
    const wrong = await failureOf(readObject({ mirror: mirrorOf(), sha, ref: 'HEAD', signal }, 'tag'))
    assert.match(wrong.message, /is a commit, not a tag$/)
    const large = await repository.commit({ 'a.txt': 'b' }, 'x'.repeat(1_100_000))
    const err = await failureOf(readCommit({ mirror: mirrorOf(), sha: large, ref: 'HEAD', signal }))
    assert.match(err.message, new RegExp(`: commit '${large}' is larger than 1 MiB$`))
    assert.deepEqual(stage.warnings, [])
  })

  it('asks the server again before something is handed out that nobody has asked for in this pass', async () => {
    const auth = { user: 'me', password: 'hunter2' }
    stage.server.behaviour.auth = auth
    const access = accessFromSecret({ username: Buffer.from('me'), password: Buffer.from('hunter2') }, 'ns/n')!
    const cacheFolder = `${stage.folder}/revoked`
    assert.equal(
      (await readCommit({ mirror: mirrorOf(access, stage.open({ cacheFolder })), sha, signal })).subject,
      'first',
    )
    stage.server.behaviour.auth = { ...auth, password: 'new' }
    const mirror = mirrorOf(access, stage.open({ cacheFolder }))
    assert.match((await failureOf(readCommit({ mirror, sha, signal }))).message, /authentication required/)
    stage.server.behaviour.auth = undefined
  })
})
