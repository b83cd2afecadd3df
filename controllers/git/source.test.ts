import assert from 'node:assert/strict'
import { startGitServer, type Repository } from '../../e2e/git-server.ts'
import { freePort } from '../../e2e/tools/port.ts'
import type { SourceContext } from '../source/source.ts'
import { StalledError } from '../runtime/errors.ts'
import { defaultListingLimits as listingLimits } from './content/listing.ts'
import { makeGitSource } from './source.ts'
import { contextOf, failureOf, objectOf, openStage, readAll, type Stage } from './test-support.ts'
import type { GitRepositoryRef, GitRepositorySpec } from './types.ts'

describe('a GitRepository', function () {
  this.timeout(120_000)
  let stage: Stage
  let repository: Repository
  let url: string
  let first: string
  let second: string
  let side: string
  let buried: string

  before(async () => {
    stage = await openStage()
    repository = await stage.server.repository('app.git')
    url = `${stage.server.url}/app.git`
    first = await repository.commit(
      { 'a.txt': 'one', 'run.sh': { content: 'sh', mode: 0o755 }, link: { symlink: 'a.txt' } },
      'first\n\nmore',
    )
    await repository.tag('v1.0.0', { message: 'annotated' })
    await repository.tag('v1.1.0-rc.1')
    await repository.branch('dev', first)
    buried = await repository.commit({ 'a.txt': 'buried' }, 'buried')
    second = await repository.commit({ 'a.txt': 'two' }, 'second')
    await repository.tag('v2025.07.03')
    await repository.tag('v9')
    await repository.tag('app-1.10.0')
    await repository.tag('app-1.4.0', { message: 'annotated', target: first })
    side = await repository.commit(
      { 'side.txt': 'x' },
      'a subject that goes on for more than fifty characters, sadly',
      { branch: 'side', orphan: true },
    )
    await repository.git(['update-ref', 'refs/pull/1/head', side])
  })
  after(() => stage.close())
  beforeEach(() =>
    Object.assign(stage.server.behaviour, { protocolV2: true, modern: true, auth: undefined, down: false }),
  )

  /** One pass with mirrors of its own: the revision, and the files. */
  async function pass(
    ref: GitRepositoryRef | undefined,
    spec: Partial<GitRepositorySpec> = {},
    ctx: SourceContext = contextOf(),
  ) {
    const source = makeGitSource({
      mirrors: stage.open({ cacheFolder: `${stage.folder}/${Math.random()}` }),
      listingLimits,
    })
    const obj = objectOf({ url, ...spec, ...(ref && { ref }) })
    const resolved = await source.resolve(obj, ctx)
    const fetched = await source.fetch(obj, resolved, ctx)
    try {
      return { revision: resolved.revision, summary: fetched.summary, files: await readAll(fetched.entries) }
    } finally {
      await fetched.close?.()
    }
  }

  for (const [what, behaviour] of [
    ['a server of today', {}],
    ['a server that knows only version 0', { protocolV2: false }],
    [
      'a server that knows only version 0 and gives nothing but what it advertises',
      { protocolV2: false, modern: false },
    ],
  ] as const) {
    it(`takes every form of ref from ${what}`, async () => {
      Object.assign(stage.server.behaviour, behaviour)
      const table: [GitRepositoryRef, string, string][] = [
        [{ branch: 'main' }, `main@sha1:${second}`, 'two'],
        [{ tag: 'v1.0.0' }, `v1.0.0@sha1:${first}`, 'one'],
        [{ semver: '>=1.0.0, <2.0.0' }, `v1.0.0@sha1:${first}`, 'one'],
        [{ semver: '>=1.0.0-0 <2' }, `v1.1.0-rc.1@sha1:${first}`, 'one'],
        [{ semver: '*' }, `v2025.07.03@sha1:${second}`, 'two'],
        [{ name: 'refs/heads/dev' }, `refs/heads/dev@sha1:${first}`, 'one'],
        [{ name: 'refs/tags/v1.0.0' }, `refs/tags/v1.0.0@sha1:${first}`, 'one'],
        [{ name: 'refs/tags/v1.0.0^{}' }, `refs/tags/v1.0.0^{}@sha1:${first}`, 'one'],
        [{ name: 'HEAD' }, `HEAD@sha1:${second}`, 'two'],
        [{ defaultBranch: true }, `main@sha1:${second}`, 'two'],
        [
          { semver: '>=1.0.0', tagFilter: { pattern: '^app-(.*)$', extract: '$1' } },
          `app-1.10.0@sha1:${second}`,
          'two',
        ],
        [{ semver: '<1.10.0', tagFilter: { pattern: '^app-(.*)$', extract: '$1' } }, `app-1.4.0@sha1:${first}`, 'one'],
        [{ commit: first }, `sha1:${first}`, 'one'],
        [{ commit: buried }, `sha1:${buried}`, 'buried'],
        [{ commit: first, branch: 'main' }, `main@sha1:${first}`, 'one'],
        [{ commit: buried, branch: 'main' }, `main@sha1:${buried}`, 'buried'],
        [{ commit: second, branch: 'main' }, `main@sha1:${second}`, 'two'],
        [{ commit: first, name: 'refs/tags/v2025.07.03' }, `refs/tags/v2025.07.03@sha1:${first}`, 'one'],
      ]
      for (const [ref, revision, content] of table) {
        const result = await pass(ref)
        assert.equal(result.revision, revision, JSON.stringify(ref))
        assert.deepEqual(result.files, { 'a.txt': content, link: 'a.txt', 'run.sh': 'sh' }, JSON.stringify(ref))
      }
      assert.equal((await pass({ name: 'refs/pull/1/head' })).revision, `refs/pull/1/head@sha1:${side}`)
    })

    it(`says what is missing on ${what}`, async () => {
      Object.assign(stage.server.behaviour, behaviour)
      for (const [ref, why] of [
        [undefined, `couldn't find remote ref "refs/heads/master"`],
        [{ branch: 'mai' }, `couldn't find remote ref "refs/heads/mai"`],
        [{ semver: '>3000' }, 'no match found for semver: >3000'],
        [{ semver: '*', tagFilter: { pattern: '^web-' } }, 'no match found for semver: *'],
        [{ commit: side, branch: 'main' }, `commit '${side}' is not part of 'refs/heads/main'`],
        [{ commit: second, branch: 'dev' }, `commit '${second}' is not part of 'refs/heads/dev'`],
        [{ commit: '0'.repeat(40) }, `commit '${'0'.repeat(40)}' not found`],
        [{ commit: '0'.repeat(40), branch: 'main' }, `commit '${'0'.repeat(40)}' is not part of 'refs/heads/main'`],
      ] as const) {
        const err = await failureOf(pass(ref))
        assert.equal(err.reason, 'GitOperationFailed')
        assert.equal(err.message, `failed to checkout and determine revision: unable to clone '${url}': ${why}`)
      }
    })
  }

  it('tells commits apart by their subject, cut after fifty characters', async () => {
    assert.equal((await pass({ tag: 'v1.0.0' })).summary, "commit 'first'")
    const { summary } = await pass({ branch: 'side' })
    assert.equal(summary, "commit 'a subject that goes on for more than fifty charact...'")
  })

  it('asks once and briefly when nothing has changed, and not at all for a commit', async () => {
    const source = makeGitSource({ mirrors: stage.mirrors, listingLimits })
    const ctx = contextOf()
    for (const [ref, requests] of [
      [{ branch: 'main' }, 1],
      [{ tag: 'v1.0.0' }, 1],
      [{ name: 'refs/pull/1/head' }, 1],
      [{ semver: '1.x' }, 1],
      [{ commit: first }, 0],
      [{ commit: first, branch: 'main' }, 1],
    ] as const) {
      const obj = objectOf({ url, ref })
      const before = await source.resolve(obj, ctx)
      const processes = (await stage.processes()).length
      stage.server.reset()
      assert.equal((await source.resolve(obj, ctx)).revision, before.revision)
      const used = stage.server.requests()
      assert.equal(used.requests, requests, JSON.stringify(ref))
      assert.ok(used.bytesIn + used.bytesOut < 1200, JSON.stringify(used))
      assert.equal((await stage.processes()).length, processes, 'a process for nothing')
    }
  })

  it('takes of tags that differ in build metadata the one with the newest commit', async () => {
    const builds = await stage.server.repository('builds.git')
    for (const [tag, time] of [
      ['v1.0.0+b', 1_700_000_000],
      ['v1.0.0+a', 1_700_009_000],
      ['v1.0.0+c', 1_700_005_000],
    ] as const) {
      await builds.commit({ tag }, tag, { time })
      await builds.tag(tag)
    }
    const { revision, files } = await pass({ semver: '1.x' }, { url: `${stage.server.url}/builds.git` })
    assert.match(revision, /^v1\.0\.0\+a@sha1:/)
    assert.deepEqual(files, { tag: 'v1.0.0+a' })
  })

  it('is empty where upstream has no ref at all', async () => {
    await stage.server.repository('empty.git')
    for (const protocolV2 of [true, false]) {
      stage.server.behaviour.protocolV2 = protocolV2
      for (const ref of [undefined, { semver: '*' }, { branch: 'main' }, { name: 'HEAD' }]) {
        const err = await failureOf(pass(ref, { url: `${stage.server.url}/empty.git` }))
        assert.equal(err.reason, 'EmptyGitRepository')
        assert.equal(err.message, 'git repository is empty')
      }
    }
  })

  it('authenticates with its Secret, else with what the URL holds', async () => {
    stage.server.behaviour.auth = { user: 'me', password: 'hunter2' }
    const secrets = { good: { username: 'me', password: 'hunter2' }, bad: { username: 'me', password: 'swordfish' } }
    const ctx = contextOf(undefined, secrets)
    const inUrl = url.replace('://', '://me:hunter2@')
    for (const spec of [
      { secretRef: { name: 'good' } },
      { url: inUrl },
      { url: inUrl.replace('hunter2', 'x'), secretRef: { name: 'good' } },
    ]) {
      assert.equal((await pass({ branch: 'main' }, spec, ctx)).revision, `main@sha1:${second}`)
      assert.equal((await pass({ commit: first }, spec, ctx)).revision, `sha1:${first}`)
    }
    for (const spec of [{}, { secretRef: { name: 'bad' } }, { url: inUrl, secretRef: { name: 'bad' } }]) {
      const err = await failureOf(pass({ branch: 'main' }, spec, ctx))
      assert.match(err.message, new RegExp(`unable to clone '${url}': authentication required`))
      assert.doesNotMatch(err.message, /hunter2|swordfish/)
    }
    const missing = await failureOf(pass({ branch: 'main' }, { secretRef: { name: 'other' } }, ctx))
    assert.equal(missing.reason, 'AuthenticationFailed')
    assert.match(missing.message, /^failed to get secret 'ns\/other':/)
  })

  it('hands out nothing that others have fetched before the server has accepted its own credentials', async () => {
    stage.server.behaviour.auth = { user: 'me', password: 'hunter2' }
    const ctx = contextOf(undefined, {
      me: { username: 'me', password: 'hunter2' },
      you: { username: 'you', password: 'guess' },
    })
    const commit = async (mirrors = stage.mirrors, secret?: string) => {
      const source = makeGitSource({ mirrors, listingLimits })
      const obj = objectOf({ url, ref: { commit: first }, ...(secret && { secretRef: { name: secret } }) })
      const fetched = await source.fetch(obj, await source.resolve(obj, ctx), ctx)
      await fetched.close?.()
    }
    await commit(stage.mirrors, 'me')
    assert.match((await failureOf(commit(stage.mirrors, 'you'))).message, /authentication required/)
    assert.match(
      (await failureOf(commit(stage.open({ cacheFolder: `${stage.folder}/none` })))).message,
      /authentication required/,
    )
    // Revoked; another process finds the commit in the cache.
    stage.server.behaviour.auth.password = 'new'
    assert.match((await failureOf(commit(stage.open(), 'me'))).message, /authentication required/)
  })

  it('says in the metadata who committed what and when', async () => {
    const source = makeGitSource({ mirrors: stage.mirrors, listingLimits })
    const obj = objectOf({ url, ref: { commit: first } })
    const fetched = await source.fetch(obj, await source.resolve(obj, contextOf()), contextOf())
    await fetched.close?.()
    const { metadata } = fetched
    const [author, time] = (await repository.git(['show', '-s', '--format=%an <%ae>%n%cI', first])).split('\n')
    assert.equal(metadata?.['git.author'], author)
    assert.equal(Date.parse(metadata?.['git.time'] ?? ''), Date.parse(time!))
    assert.equal(metadata?.['git.message'], 'first\n\nmore')
  })

  it('asks the next address where one does not answer, and none where the server knows better', async () => {
    const source = makeGitSource({ mirrors: stage.mirrors, listingLimits })
    const nowhere = `http://127.0.0.1:${await freePort()}/app.git`
    const hanging = await startGitServer({ hang: 'info/refs' })
    try {
      const spec = { timeout: '3s', fallbackURLs: [nowhere, `${hanging.url}/app.git`, url], ref: { branch: 'main' } }
      const found = await source.resolve(objectOf({ url: nowhere, ...spec }), contextOf())
      assert.equal(found.revision, `main@sha1:${second}`)
      assert.equal(found.upstream.mirror.remote.url, url)
      const none = { url: nowhere, timeout: '2s', fallbackURLs: [`${hanging.url}/app.git`] }
      const err = await failureOf(source.resolve(objectOf(none), contextOf(AbortSignal.timeout(2_000))))
      assert.match(err.message, new RegExp(`unable to clone '${nowhere}'|timed out`))
      hanging.reset()
      const missing = { url, ref: { branch: 'gone' }, fallbackURLs: [`${hanging.url}/app.git`] }
      assert.match(
        (await failureOf(source.resolve(objectOf(missing), contextOf()))).message,
        /couldn't find remote ref/,
      )
      assert.equal(hanging.requests().requests, 0)
    } finally {
      await hanging.stop()
    }
  })

  it('takes a bare commit from the first address that answers', async () => {
    const source = makeGitSource({ mirrors: stage.mirrors, listingLimits })
    const nowhere = `http://127.0.0.1:${await freePort()}/app.git`
    const obj = objectOf({ url: nowhere, fallbackURLs: [url], ref: { commit: first } })
    const fetched = await source.fetch(obj, await source.resolve(obj, contextOf()), contextOf())
    await fetched.close?.()
    assert.equal(fetched.summary, "commit 'first'")
  })

  it('stalls on a further address that is none, before anyone is asked', async () => {
    const source = makeGitSource({ mirrors: stage.mirrors, listingLimits })
    for (const fallbackURLs of [['file:///etc'], ['--x'], Array.from({ length: 9 }, () => url)]) {
      const err = await failureOf(source.resolve(objectOf({ url, fallbackURLs }), contextOf()))
      assert.ok(err instanceof StalledError)
      assert.equal(err.reason, 'URLInvalid')
    }
  })

  it('has no more files than an artifact may have', async () => {
    const source = makeGitSource({ mirrors: stage.mirrors, listingLimits: { ...listingLimits, maxFiles: 2 } })
    const obj = objectOf({ url, ref: { commit: first } })
    const fetched = await source.fetch(obj, await source.resolve(obj, contextOf()), contextOf())
    const err = await failureOf(readAll(fetched.entries))
    await fetched.close?.()
    assert.equal(err.reason, 'TooManyFiles')
    assert.equal(err.message, `commit '${first}' has more than 2 files (--artifact-max-entries)`)
  })

  it('is not disturbed by fields that ask for nothing', async () => {
    const spec = { provider: 'generic' as const, include: [], recurseSubmodules: false, sparseCheckout: [] }
    assert.equal((await pass({ branch: 'main' }, spec)).revision, `main@sha1:${second}`)
  })

  it('starts no process and sends no request for a hostile URL or ref', async () => {
    const source = makeGitSource({ mirrors: stage.mirrors, listingLimits })
    const processes = (await stage.processes()).length
    stage.server.reset()
    for (const spec of [
      { url: '--upload-pack=touch x' },
      { url: 'ext::sh -c true' },
      { url: 'file:///etc' },
      { url: `${url}\n` },
      { url, ref: { branch: '--exec=x' } },
      { url, ref: { tag: '-c protocol.allow=always' } },
      { url, ref: { name: 'refs/heads/a..b' } },
      { url, ref: { commit: '--upload-pack=x' } },
      { url, ref: { branch: '@{-1}' } },
    ]) {
      const err = await failureOf(source.resolve(objectOf(spec), contextOf()))
      assert.ok(err instanceof StalledError, JSON.stringify(spec))
    }
    assert.equal((await stage.processes()).length, processes)
    assert.equal(stage.server.requests().requests, 0)
  })

  it('ends at once when it is aborted', async () => {
    for (const hang of ['info/refs', 'git-upload-pack'] as const) {
      stage.server.behaviour.hang = hang
      const abort = new AbortController()
      setTimeout(() => abort.abort(), 200)
      try {
        assert.match((await failureOf(pass({ branch: 'main' }, {}, contextOf(abort.signal)))).message, /aborted/)
      } finally {
        stage.server.behaviour.hang = undefined
      }
    }
  })
})
