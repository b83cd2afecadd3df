import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { type GitServer, type Repository, startGitServer } from '../../e2e/git-server.ts'
import { getCondition } from '../runtime/conditions.ts'
import { eventually } from '../runtime/eventually.ts'
import { type SourceRun, startSourceRun } from '../source/test-run.ts'
import { defaultListingLimits as listingLimits } from './content/listing.ts'
import { makeMirrors } from './mirror/mirrors.ts'
import { makeGitSource } from './source.ts'
import { type GitRepository, type GitRepositoryInclude, GitRepositoryKind } from './types.ts'

/** Nobody tries again within a test: what heals was woken. */
const flags = ['--min-retry-delay=10m', '--max-retry-delay=10m', '--requeue-dependency=10m']

describe('GitRepository objects that include others', function () {
  this.timeout(120_000)
  let server: GitServer
  let cacheFolder: string
  let run: SourceRun<GitRepository>
  const repositories: Record<string, Repository> = {}
  const commitTo = (name: string, files: Record<string, string>) => repositories[name]!.commit(files, 'change')

  before(async () => {
    server = await startGitServer()
    cacheFolder = await mkdtemp(join(tmpdir(), 'openflux-git-'))
    for (const name of ['app', 'lib']) {
      repositories[name] = await server.repository(`${name}.git`)
      await commitTo(name, { [`${name}.yaml`]: `${name}: 1\n`, [`deploy/${name}.yaml`]: `${name}: 1\n` })
    }
  })
  after(async () => {
    await server?.stop()
    await rm(cacheFolder, { recursive: true, force: true })
  })
  beforeEach(async () => {
    const source = makeGitSource({ mirrors: makeMirrors({ cacheFolder }), listingLimits })
    const spec = { url: `${server.url}/app.git`, interval: '1h', ref: { branch: 'main' } }
    run = await startSourceRun(source, spec, { flags })
  })
  afterEach(() => run?.stop())

  const including = (name: string, paths: Partial<GitRepositoryInclude> = {}) => ({
    include: [{ repository: { name }, ...paths }],
  })
  const createLib = () => run.create('lib', { url: `${server.url}/lib.git` })
  const respecify = (name: string, spec: object) =>
    run.client.patch(GitRepositoryKind, { namespace: run.namespace, name }, { spec })

  /** What an object is stuck with: `<condition>/<reason>: <message>`. */
  const trouble = async (name: string, type: string) => {
    const object = await run.read(name)
    const { reason, message } = getCondition(object, type) ?? {}
    assert.equal(getCondition(object, 'Ready')?.status, 'False')
    return reason && `${reason}: ${message}`
  }
  /** The names in the stored archive, once they are as expected. */
  async function holds(name: string, ...expected: string[]): Promise<void> {
    await eventually(async () => {
      const { status } = await run.ready(name)
      const tar = gunzipSync(await readFile(join(run.storage, status.artifact.path))).toString('latin1')
      return expected.every((text) => tar.includes(text))
    })
  }

  it('wait for one that is not there, then for its artifact, and follow both at once', async () => {
    await run.create('app', including('lib'))
    const missing =
      'could not get resource for include \'lib\': gitrepositories.source.toolkit.fluxcd.io "lib" not found'
    await eventually(async () => (await trouble('app', 'IncludeUnavailable')) === `NotFound: ${missing}`)
    await run.create('lib', { url: `${server.url}/lib.git`, suspend: true })
    const waiting = await run.poke('app')
    assert.equal(getCondition(waiting, 'IncludeUnavailable')?.reason, 'NoArtifact')
    assert.equal(getCondition(waiting, 'Ready')?.message, "no artifact available for include 'lib'")
    await respecify('lib', { suspend: false })
    await holds('app', 'app.yaml', 'lib/deploy/lib.yaml', 'lib: 1')
    const object = await run.ready('app')
    const { status } = object
    assert.equal(getCondition(object, 'IncludeUnavailable'), undefined)
    assert.deepEqual(status.includedArtifacts, [(await run.read('lib')).status?.artifact])
    assert.deepEqual(status.observedInclude, including('lib').include)
  })

  it('are built anew when it changes, and when it is to go elsewhere, at the same revision', async () => {
    await createLib()
    await run.create('app', including('lib', { fromPath: './deploy/', toPath: 'base' }))
    await holds('app', 'base/lib.yaml', 'lib: 1')
    const before = (await run.ready('app')).status.artifact
    await commitTo('lib', { 'deploy/lib.yaml': 'lib: 2\n' })
    await run.poke('lib')
    await holds('app', 'base/lib.yaml', 'lib: 2')
    await respecify('app', including('lib', { fromPath: 'deploy', toPath: 'elsewhere' }))
    await holds('app', 'elsewhere/lib.yaml')
    const after = (await run.ready('app')).status.artifact
    assert.equal(after.revision, before.revision)
    assert.notEqual(after.digest, before.digest)
    await respecify('app', { include: null })
    await eventually(async () => (await run.ready('app')).status.includedArtifacts === undefined)
  })

  it('are refused what cannot work, and keep what they have', async () => {
    await createLib()
    await run.create('app')
    const { status } = await run.ready('app')
    const table: [Partial<GitRepositoryInclude> & { name?: string }, string, RegExp][] = [
      [
        { fromPath: 'nowhere' },
        'StorageOperationFailed',
        /^CopyFailure: failed to copy 'lib' include from nowhere to lib: no such/,
      ],
      [
        { fromPath: 'deploy', toPath: 'app.yaml' },
        'StorageOperationFailed',
        /^CopyFailure: .* "app\.yaml" is there already/,
      ],
      [{ toPath: '../x' }, 'StorageOperationFailed', /^IllegalPath: path calculation for include 'lib' failed/],
      [{ fromPath: '/etc' }, 'StorageOperationFailed', /^IllegalPath: .*absolute/],
      [{ repository: { name: 'app' } }, 'IncludeUnavailable', /^IncludeCycle: include 'app' is this object itself/],
      [{ repository: { name: '../secrets' } }, 'IncludeUnavailable', /^NotFound: .*not a name/],
    ]
    for (const [include, type, expected] of table) {
      await respecify('app', including('lib', include))
      await eventually(async () => expected.test((await trouble('app', type)) ?? ''))
      assert.deepEqual((await run.read('app')).status?.artifact, status.artifact)
    }
    await respecify('app', including('lib', { fromPath: 'deploy' }))
    await holds('app', 'lib/lib.yaml')
  })

  it('are never built in circles', async () => {
    await createLib()
    await run.create('app', including('lib'))
    await run.ready('app')
    await run.create('far', including('app'))
    await run.ready('far')
    await respecify('lib', including('far'))
    const why = 'IncludeCycle: the includes lead back to this object: lib → far → app → lib'
    await eventually(async () => (await trouble('lib', 'IncludeUnavailable')) === why)
    // A change of another one would go round, too: it ends with the first that includes it.
    const before = await run.ready('far')
    const digest = (await run.read('lib')).status?.artifact?.digest
    await commitTo('app', { 'app.yaml': 'app: 2\n' })
    await run.poke('app')
    const round = 'IncludeCycle: the includes lead back to this object: far → app → lib → far'
    await eventually(async () => (await trouble('far', 'IncludeUnavailable')) === round)
    assert.deepEqual((await run.read('far')).status?.artifact, before.status.artifact)
    assert.equal((await run.read('lib')).status?.artifact?.digest, digest)
    await respecify('lib', { include: null })
    await run.ready('lib')
    await run.poke('far')
    await holds('far', 'app/app.yaml', 'app: 2')
  })
})
