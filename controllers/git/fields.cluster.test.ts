import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type GitServer, type Repository, startGitServer } from '../../e2e/git-server.ts'
import { getCondition } from '../runtime/conditions.ts'
import { eventually } from '../runtime/eventually.ts'
import { SecretKind } from '../runtime/secret.ts'
import { type SourceRun, startSourceRun } from '../source/test-run.ts'
import { defaultListingLimits as listingLimits } from './content/listing.ts'
import { makeMirrors } from './mirror/mirrors.ts'
import { makeGitSource } from './source.ts'
import { type GitRepository, GitRepositoryKind } from './types.ts'
import { openSigningStage, type SigningStage } from './verify/test-signers.ts'

describe('fields of a GitRepository, on a real API server', function () {
  this.timeout(120_000)
  let signing: SigningStage
  let server: GitServer
  let repository: Repository
  let cacheFolder: string
  let run: SourceRun<GitRepository>

  before(async () => {
    signing = await openSigningStage()
    server = await startGitServer({ repositories: { 'signed.git': signing.repository.dir } })
    repository = await server.repository('app.git')
    const link = { symlink: 'x' }
    await repository.commit({ 'a/x': 'x', 'a/link': link, 'a/out': { symlink: '/etc/passwd' }, 'b/y': 'y' }, 'first')
    cacheFolder = await mkdtemp(join(tmpdir(), 'openflux-git-'))
    const source = makeGitSource({ mirrors: makeMirrors({ cacheFolder }), listingLimits })
    run = await startSourceRun(source, { url: `${server.url}/app.git`, interval: '1h', ref: { defaultBranch: true } })
  })
  after(async () => {
    await run?.stop()
    await server?.stop()
    await signing?.close()
    await rm(cacheFolder, { recursive: true, force: true })
  })

  async function respecify(name: string, spec: object): Promise<GitRepository> {
    await run.client.patch(GitRepositoryKind, { namespace: run.namespace, name }, { spec })
    return run.ready(name)
  }
  const eventsOf = async (name: string, reason: string) =>
    (await run.events(name, reason)).map(({ type, message }) => `${type} ${message}`)

  it('are in the status as long as they are in the spec, with the links that they have left out in a warning', async () => {
    const fields = { sparseCheckout: ['a'], recurseSubmodules: true, symlinks: 'Keep' as const, lfs: true }
    await run.create('fields', { ...fields, revisionScope: 'SparseCheckout' })
    const { status } = await run.ready('fields')
    const observed = ({ status: of = {} }: GitRepository) =>
      Object.fromEntries(Object.entries(of).filter(([name]) => /^observed(?!Generation)/.test(name)))
    assert.deepEqual(observed(await run.read('fields')), {
      observedSparseCheckout: ['a'],
      observedRecurseSubmodules: true,
      observedSymlinks: 'Keep',
      observedLFS: true,
      observedRevisionScope: 'SparseCheckout',
    })
    const { revision } = status.artifact
    assert.match(revision, /^main@sha1:/)
    const dropped = (links: string) => `Warning left ${links} out of the artifact for revision '${revision}'`
    await eventually(async () => (await eventsOf('fields', 'SymlinksDropped')).includes(dropped('1 symbolic link')))
    const plain = Object.fromEntries([...Object.keys(fields), 'revisionScope'].map((field) => [field, null]))
    assert.deepEqual(observed(await respecify('fields', plain)), {})
    await eventually(async () => (await eventsOf('fields', 'SymlinksDropped')).includes(dropped('2 symbolic links')))
  })

  it('let a revision stay, from the moment on that they say so', async () => {
    await run.create('scoped', { sparseCheckout: ['a'] })
    const { status } = await run.ready('scoped')
    await respecify('scoped', { revisionScope: 'SparseCheckout' })
    await eventually(async () => (await run.artifact('scoped'))?.spec?.metadata?.['git.scope'])
    const before = await run.artifact('scoped')
    await repository.commit({ 'b/y': 'other' }, 'elsewhere')
    const after = await run.poke('scoped')
    assert.equal(getCondition(after, 'Ready')?.status, 'True')
    assert.equal(after.status?.artifact?.revision, status.artifact.revision)
    assert.deepEqual((await run.artifact('scoped'))?.spec, before?.spec)
  })

  it('demand signatures, and say whose they found and how they looked for them', async () => {
    const signer = await signing.ssh()
    const { sha } = await signing.commit(signer)
    const { oid } = await signing.tag(signer, 'app/v1.2.0', sha)
    await signing.repository.git(['update-ref', 'refs/tags/app/v1.2.0', oid])
    const data = { 'me.sshpub': Buffer.from(await signer.publicKey()).toString('base64') }
    const metadata = { name: 'keys', namespace: run.namespace }
    await run.client.create(SecretKind, { apiVersion: 'v1', kind: 'Secret', metadata, data })
    await run.create('signed', {
      url: `${server.url}/signed.git`,
      ref: { semver: '1.x', tagFilter: { pattern: '^app/v(.*)$', extract: '$1' } },
      verify: { mode: 'TagAndHEAD', secretRef: { name: 'keys' } },
    })
    const object = await run.ready('signed')
    assert.equal(object.status.artifact.revision, `app/v1.2.0@sha1:${sha}`)
    assert.equal(object.status.sourceVerificationMode, 'TagAndHEAD')
    const message = `verified signature of\n\t- tag 'app/v1.2.0@${oid}' with key '${signer.shown}'\n\t- commit '${sha}' with key '${signer.shown}'`
    assert.equal(getCondition(object, 'SourceVerified')?.message, message)
    await eventually(async () => (await eventsOf('signed', 'Succeeded')).includes(`Normal ${message}`))
    const { status } = await respecify('signed', { verify: null })
    assert.deepEqual(
      [status?.sourceVerificationMode, status?.conditions?.some(({ type }) => type === 'SourceVerified')],
      [undefined, false],
    )
  })
})
