import assert from 'node:assert/strict'
import { startGitServer, type GitServer, type Repository } from '../../e2e/git-server.ts'
import { StalledError } from '../runtime/errors.ts'
import type { Resolved, SourceContext } from '../source/source.ts'
import { defaultListingLimits as listingLimits } from './content/listing.ts'
import { makeGitSource, type Commit } from './source.ts'
import { contextOf, failureOf, objectOf, openStage, readAll, type Stage } from './test-support.ts'
import type { GitRepository, GitRepositorySpec } from './types.ts'
import { openSigningStage, type SigningStage } from './verify/test-signers.ts'

describe('what a spec may ask for beside a ref', function () {
  this.timeout(120_000)
  let stage: Stage
  let repository: Repository
  let url: string

  beforeEach(async () => {
    stage = await openStage()
    repository = await stage.server.repository('app.git')
    url = `${stage.server.url}/app.git`
  })
  afterEach(() => stage.close())

  const sourceOf = () => makeGitSource({ mirrors: stage.mirrors, listingLimits })

  async function filesOf(spec: Partial<GitRepositorySpec>): Promise<Record<string, string>> {
    const source = sourceOf()
    const obj = objectOf({ url, ref: { branch: 'main' }, ...spec })
    const fetched = await source.fetch(obj, await source.resolve(obj, contextOf()), contextOf())
    try {
      return await readAll(fetched.entries)
    } finally {
      await fetched.close?.()
    }
  }

  it('is nothing but the folders of sparseCheckout', async () => {
    await repository.commit({ 'a/x': 'x', 'ab/y': 'y', 'b/c/z': 'z', root: 'r' }, 'first')
    assert.deepEqual(await filesOf({ sparseCheckout: ['./a', 'b/c/'] }), { 'a/x': 'x', 'b/c/z': 'z' })
    const source = sourceOf()
    for (const path of ['../a', '/a', '-c', 'a\\b', 'a\0']) {
      const err = await failureOf(source.resolve(objectOf({ url, sparseCheckout: ['a', path] }), contextOf()))
      assert.ok(err instanceof StalledError && /spec\.sparseCheckout\[1\]/.test(err.message), err.message)
    }
  })

  it('is the content of submodules too', async () => {
    const library = await stage.server.repository('library.git')
    const submodule = await library.commit({ 'lib.txt': 'lib' }, 'lib')
    const modules = '[submodule "lib"]\n\tpath = lib\n\turl = ../library.git\n'
    await repository.commit({ 'a.txt': 'a', '.gitmodules': modules, lib: { submodule } }, 'first')
    assert.deepEqual(await filesOf({}), { 'a.txt': 'a', '.gitmodules': modules })
    const files = await filesOf({ recurseSubmodules: true })
    assert.deepEqual(files, { 'a.txt': 'a', '.gitmodules': modules, 'lib/lib.txt': 'lib' })
  })

  it('is kept apart by all that alters the bytes, and by whose credentials were used', async () => {
    await repository.commit({ 'a/x': 'x', b: 'b' }, 'first')
    const secrets = { one: { username: 'me', password: 'hunter2' }, two: { username: 'me', password: 'hunter3' } }
    const specs: Partial<GitRepositorySpec>[] = [
      {},
      { sparseCheckout: ['a'] },
      { lfs: true },
      { secretRef: { name: 'one' } },
      { secretRef: { name: 'two' } },
    ]
    const keys = await Promise.all(
      specs.map(async (spec) => {
        const source = sourceOf()
        const ctx = contextOf(undefined, secrets)
        const obj = objectOf({ url, ref: { branch: 'main' }, ...spec })
        const fetched = await source.fetch(obj, await source.resolve(obj, ctx), ctx)
        await fetched.close?.()
        return fetched.contentKey
      }),
    )
    assert.equal(new Set(keys).size, specs.length)
    assert.ok(keys.every((key) => key && !key.includes('hunter')))
  })

  describe('a revision that follows the folders of sparseCheckout alone', () => {
    const spec = { ref: { branch: 'main' }, sparseCheckout: ['a'], revisionScope: 'SparseCheckout' } as const

    /** What the next pass resolves, once `last` has been stored. */
    async function next(last?: { resolved: Resolved<Commit>; metadata: Record<string, string> }) {
      const source = sourceOf()
      const obj: GitRepository = objectOf({ url, ...spec, sparseCheckout: ['a'] })
      if (last) {
        const { resolved, metadata } = last
        const artifact = { path: '', url: '', digest: '', lastUpdateTime: '', revision: resolved.revision, metadata }
        obj.status = { artifact }
      }
      const resolved = await source.resolve(obj, contextOf())
      const fetched = await source.fetch(obj, resolved, contextOf())
      await fetched.close?.()
      return { resolved, metadata: fetched.metadata ?? {}, summary: fetched.summary }
    }

    it('stays while commits touch none of them, and moves when one does', async () => {
      const first = await repository.commit({ 'a/x': 'one', 'b/y': 'one' }, 'first')
      const stored = await next()
      assert.equal(stored.resolved.revision, `main@sha1:${first}`)
      await repository.commit({ 'b/y': 'two', c: 'new' }, 'elsewhere')
      // Built anew for another reason, it says nothing of a commit that is not that of the revision.
      const { resolved, metadata, summary } = await next(stored)
      assert.equal(resolved.revision, stored.resolved.revision)
      assert.deepEqual([metadata, summary], [stored.metadata, undefined])
      const third = await repository.commit({ 'a/x': 'two' }, 'here')
      const moved = await next(stored)
      assert.equal(moved.resolved.revision, `main@sha1:${third}`)
      const mode = await repository.commit({ 'a/x': { content: 'two', mode: 0o755 } }, 'executable')
      assert.equal((await next(moved)).resolved.revision, `main@sha1:${mode}`)
    })

    it('is asked for by what must be stored once more, as the next commit is compared with that', async () => {
      const source = sourceOf()
      await repository.commit({ 'a/x': 'one' }, 'first')
      const { resolved } = await next()
      const before = source.observed!(objectOf({ url, ref: { branch: 'main' }, sparseCheckout: ['a'] }), resolved)
      const after = source.observed!(objectOf({ url, ...spec, sparseCheckout: ['a'] }), resolved)
      assert.deepEqual(after, { ...before, observedRevisionScope: 'SparseCheckout' })
    })
  })
})

describe('a GitRepository that must be signed', function () {
  this.timeout(120_000)
  let signing: SigningStage
  let server: GitServer
  let stage: Stage

  before(async () => {
    signing = await openSigningStage()
    server = await startGitServer({ repositories: { 'app.git': signing.repository.dir } })
    stage = await openStage()
  })
  after(async () => {
    await stage.close()
    await server.stop()
    await signing.close()
  })

  it('is verified on every pass, again when the keys have changed, and without a process when nothing has', async () => {
    const [alice, mallory] = [await signing.pgp(), await signing.ssh()]
    const { sha } = await signing.commit(alice)
    await signing.repository.git(['update-ref', 'refs/heads/main', sha])
    const { oid } = await signing.tag(alice, 'v1.0.0', sha)
    await signing.repository.git(['update-ref', 'refs/tags/v1.0.0', oid])
    const keys: Record<string, string> = { 'alice.asc': await alice.publicKey() }
    const ctx: SourceContext = contextOf(undefined, { keys })
    const source = makeGitSource({ mirrors: stage.mirrors, listingLimits })
    const verify = { mode: 'TagAndHEAD', secretRef: { name: 'keys' } } as const
    const obj = objectOf({ url: `${server.url}/app.git`, ref: { semver: '1.x' }, verify })
    const resolved = await source.resolve(obj, ctx)
    const line = (what: string) => `\n\t- ${what} with key '${alice.shown}'`
    const message = `verified signature of${line(`tag 'v1.0.0@${oid}'`)}${line(`commit '${sha}'`)}`
    assert.equal(await source.verify!(obj, resolved, ctx), message)
    server.reset()
    const processes = (await stage.processes()).length
    assert.equal(await source.verify!(obj, resolved, ctx), message)
    assert.equal((await stage.processes()).length + server.requests().requests, processes)

    delete keys['alice.asc']
    keys['mallory.sshpub'] = await mallory.publicKey()
    const err = await failureOf(source.verify!(obj, resolved, ctx))
    assert.equal(err.condition, 'SourceVerified')
    assert.match(err.message, /PGP signature detected but no PGP public keys found in secret/)
    keys['alice.asc'] = await alice.publicKey()
    assert.equal(await source.verify!(obj, resolved, ctx), message)
    assert.equal(await source.verify!(objectOf({ url: obj.spec.url }), resolved, ctx), undefined)
  })

  it('says that the keys are missing, and that a branch has no tag', async () => {
    const source = makeGitSource({ mirrors: stage.mirrors, listingLimits })
    const url = `${server.url}/app.git`
    const ref = { branch: 'main' }
    const obj = objectOf({ url, ref, verify: { secretRef: { name: 'none' } } })
    const resolved = await source.resolve(obj, contextOf())
    const err = await failureOf(source.verify!(obj, resolved, contextOf()))
    assert.deepEqual([err.reason, err.condition], ['VerificationError', 'SourceVerified'])
    assert.match(err.message, /^public keys secret error: failed to get secret 'ns\/none'/)
    const tagged = objectOf({ url, ref, verify: { mode: 'Tag', secretRef: { name: 'keys' } } })
    const stalled = await failureOf(source.verify!(tagged, resolved, contextOf(undefined, { keys: {} })))
    assert.ok(stalled instanceof StalledError)
    assert.equal(stalled.reason, 'InvalidVerificationMode')
  })
})
