import assert from 'node:assert/strict'
import { ArtifactKind } from '../controllers/artifact/types.ts'
import { GitRepositoryKind } from '../controllers/git/types.ts'
import { Client } from '../controllers/runtime/client.ts'
import { apiVersionOf, type Kind, type KubeObject } from '../controllers/runtime/kind.ts'
import { loadCredentials } from '../controllers/runtime/kube-config.ts'
import { type Kubectl, makeKubectl } from '../deploy/kubectl.ts'
import { type ControlPlane, startControlPlane } from '../e2e/control-plane/index.ts'
import { eventuallyHolds } from '../controllers/runtime/eventually.ts'

const url = 'https://git.example.com/x.git'
const digest = `sha256:${'0123456789abcdef'.repeat(4)}`
const stored = { url: 'http://files/x', revision: 'main@sha1:abc', lastUpdateTime: '2026-01-02T03:04:05Z' }
const secretRef = { name: 'keys' }
const serviceAccountRule = /serviceAccountName can only be set when provider is 'azure' or 'aws'/

let cluster: ControlPlane
let kubectl: Kubectl
let client: Client
let count = 0

/** An object as the API takes and returns it: the point is what else it may hold. */
interface Loose extends KubeObject {
  spec?: unknown
  status?: unknown
}

function create(kind: Kind<Loose>, content: object): Promise<Loose> {
  const metadata = { name: `object-${++count}`, namespace: 'default' }
  return client.create(kind, { apiVersion: apiVersionOf(kind), kind: kind.kind, metadata, ...content })
}

const createGit = (spec: object) => create(GitRepositoryKind, { spec: { url, interval: '5m', ...spec } })
const createArtifact = (spec: object) => create(ArtifactKind, { spec: { ...stored, ...spec } })

/** Fills in the status of an object as its controller does. */
function patchStatus(kind: Kind<Loose>, { metadata }: Loose, status: object): Promise<Loose> {
  const key = { namespace: 'default', name: metadata.name }
  return client.patch(kind, key, { status }, { subresource: 'status' })
}

describe('CRDs on a real API server', function () {
  this.timeout(60_000)

  before(async function () {
    this.timeout(900_000)
    cluster = await startControlPlane()
    kubectl = await makeKubectl(cluster)
    client = new Client(loadCredentials(cluster.kubeconfig), 'crds-test')
    await kubectl.run(['apply', '-f', import.meta.dirname])
    await kubectl.run(['wait', '--for=condition=Established', 'crd', '--all', '--timeout=30s'])
  })

  after(async () => {
    await kubectl?.[Symbol.asyncDispose]()
    await cluster?.stop()
  })

  it('are applied again without a change', async () => {
    const lines = (await kubectl.run(['apply', '-f', import.meta.dirname])).trim().split('\n')
    assert.equal(lines.length, 2)
    for (const line of lines) assert.match(line, / unchanged$/)
  })

  it('have nothing that a structural schema may not have', async () => {
    for (const kind of [GitRepositoryKind, ArtifactKind]) {
      const crd = await kubectl.run(['get', 'crd', `${kind.plural}.${kind.group}`, '-o', 'json'])
      assert.doesNotMatch(crd, /NonStructuralSchema/)
    }
  })

  it('are listed with their short names and categories', async () => {
    const list = await kubectl.run(['api-resources', '-o', 'wide', '--no-headers'])
    assert.match(
      list,
      /^gitrepositories +gitrepo +source\.toolkit\.fluxcd\.io\/v1 +true .* all,fluxcd,fluxcd-sources$/m,
    )
    assert.match(list, /^artifacts +art +openfluxcd\.ocm\.software\/v1alpha1 +true .* all,openflux$/m)
  })

  it('explain their fields', async () => {
    // The server publishes the schemas of new kinds a moment after it serves them.
    await eventuallyHolds(async () => {
      assert.match(await kubectl.run(['explain', 'gitrepository.spec.ref.semver']), /The highest tag within/)
      assert.match(await kubectl.run(['explain', 'artifact.spec.digest']), /Checksum of the file/)
    })
  })

  it('fill in defaults', async () => {
    const { spec, status } = await createGit({ verify: { secretRef } })
    assert.deepEqual(spec, { url, interval: '5m', timeout: '60s', verify: { mode: 'HEAD', secretRef } })
    assert.deepEqual(status, { observedGeneration: -1 })
  })

  it('drop fields that they do not know', async () => {
    const { spec } = await createArtifact({ path: 'x' })
    assert.deepEqual(spec, stored)
  })

  it('keep every field of the status', async () => {
    const artifact = {
      path: 'a/b/c/d',
      url: 'u',
      revision: 'r',
      digest,
      size: 1,
      lastUpdateTime: stored.lastUpdateTime,
      metadata: { a: 'b' },
    }
    const include = [{ repository: { name: 'other' }, fromPath: 'a', toPath: 'b' }]
    const status = {
      observedGeneration: 1,
      lastHandledReconcileAt: 'now',
      conditions: [condition()],
      artifact,
      includedArtifacts: [artifact],
      observedIgnore: '*.md',
      observedRecurseSubmodules: true,
      observedInclude: include,
      observedSparseCheckout: ['a'],
      observedRevisionScope: 'SparseCheckout',
      observedSymlinks: 'Keep',
      observedLFS: true,
      sourceVerificationMode: 'HEAD',
    }
    assert.deepEqual((await patchStatus(GitRepositoryKind, await createGit({}), status)).status, status)
    const short = { observedGeneration: 1, conditions: [condition()] }
    assert.deepEqual((await patchStatus(ArtifactKind, await createArtifact({}), short)).status, short)
  })

  describe('GitRepository', () => {
    const accepted: Record<string, object> = {
      http: { url: 'http://git.example.com/x' },
      ssh: { url: 'ssh://git@git.example.com:2222/x' },
      'credentials in the url': { url: 'https://user:word@git.example.com/x' },
      'a compound interval': { interval: '1h30m' },
      'a fraction of an hour': { interval: '1.5h' },
      milliseconds: { interval: '500ms', timeout: '1500ms' },
      'a timeout of minutes': { timeout: '1m30s' },
      'every ref at once': { ref: { branch: 'a', tag: 'b', semver: '1.x', name: 'refs/heads/c', commit: 'd' } },
      'an empty ref': { ref: {} },
      'no patterns to ignore': { ignore: '' },
      'the provider generic': { provider: 'generic', secretRef },
      'the provider github': { provider: 'github', secretRef },
      'a service account for azure': { provider: 'azure', serviceAccountName: 'a' },
      'a service account for aws': { provider: 'aws', serviceAccountName: 'a' },
      'a proxy': { proxySecretRef: { name: 'proxy' } },
      'mode head': { verify: { mode: 'head', secretRef } },
      'mode HEAD': { verify: { mode: 'HEAD', secretRef } },
      'mode Tag': { verify: { mode: 'Tag', secretRef } },
      'mode TagAndHEAD': { verify: { mode: 'TagAndHEAD', secretRef } },
      'an include without paths': { include: [{ repository: { name: 'other' } }] },
      'folders, submodules and suspension': { sparseCheckout: ['a'], recurseSubmodules: true, suspend: true },
      'the default branch': { ref: { defaultBranch: true } },
      'tags that match a pattern': { ref: { semver: '1.x', tagFilter: { pattern: '^app-(.*)$', extract: '$1' } } },
      'further addresses': { fallbackURLs: Array.from({ length: 8 }, () => url) },
      'a revision of folders': { sparseCheckout: ['a'], revisionScope: 'SparseCheckout' },
      'links and large files': { symlinks: 'Keep', lfs: true },
    }
    for (const [name, spec] of Object.entries(accepted)) {
      it(`accepts ${name}`, async () => {
        assert.deepEqual((await createGit(spec)).spec, { url, interval: '5m', timeout: '60s', ...spec })
      })
    }

    const refused: [name: string, spec: object, message: RegExp][] = [
      ['a file', { url: 'file:///etc' }, /spec\.url: Invalid value.*should match/],
      ['a remote helper', { url: 'ext::sh -c id' }, /spec\.url: Invalid value/],
      ['an option for a url', { url: '--upload-pack=id' }, /spec\.url: Invalid value/],
      ['a short option for a url', { url: '-oProxyCommand=id' }, /spec\.url: Invalid value/],
      ['an ssh address that is no url', { url: 'git@git.example.com:x' }, /spec\.url: Invalid value/],
      ['the git protocol', { url: 'git://git.example.com/x' }, /spec\.url: Invalid value/],
      ['a scheme after a blank', { url: ' https://git.example.com/x' }, /spec\.url: Invalid value/],
      ['a url of two lines', { url: `${url}\nx` }, /spec\.url: Invalid value/],
      ['an empty url', { url: '' }, /spec\.url: Invalid value/],
      ['no url', { url: undefined }, /spec\.url: Required value/],
      ['no interval', { interval: undefined }, /spec\.interval: Required value/],
      ['days', { interval: '1d' }, /spec\.interval: Invalid value/],
      ['a negative interval', { interval: '-1s' }, /spec\.interval: Invalid value/],
      ['an interval without a unit', { interval: '5' }, /spec\.interval: Invalid value/],
      ['an interval with a blank', { interval: '5m 1s' }, /spec\.interval: Invalid value/],
      ['a number for an interval', { interval: 5 }, /spec\.interval: Invalid value/],
      ['an empty interval', { interval: '' }, /spec\.interval: Invalid value/],
      ['a timeout of hours', { timeout: '1h' }, /spec\.timeout: Invalid value/],
      ['a negative timeout', { timeout: '-1s' }, /spec\.timeout: Invalid value/],
      ['an unknown provider', { provider: 'gcp' }, /spec\.provider: Unsupported value: "gcp"/],
      ['a service account without a provider', { serviceAccountName: 'a' }, serviceAccountRule],
      ['a service account for generic', { serviceAccountName: 'a', provider: 'generic' }, serviceAccountRule],
      ['a service account for github', { serviceAccountName: 'a', provider: 'github' }, serviceAccountRule],
      ['an unknown mode', { verify: { mode: 'Head', secretRef } }, /spec\.verify\.mode: Unsupported value: "Head"/],
      ['verification without keys', { verify: {} }, /spec\.verify\.secretRef: Required value/],
      ['a Secret without a name', { secretRef: {} }, /spec\.secretRef\.name: Required value/],
      ['a proxy without a name', { proxySecretRef: {} }, /spec\.proxySecretRef\.name: Required value/],
      ['an include of nothing', { include: [{ fromPath: 'a' }] }, /spec\.include\[0\]\.repository: Required value/],
      [
        'an include without a name',
        { include: [{ repository: {} }] },
        /spec\.include\[0\]\.repository\.name: Required value/,
      ],
      ['a folder that is no text', { sparseCheckout: [1] }, /spec\.sparseCheckout\[0\]: Invalid value/],
      ['a revision of folders without any', { revisionScope: 'SparseCheckout' }, /needs folders in sparseCheckout/],
      ['an unknown scope', { revisionScope: 'Path' }, /spec\.revisionScope: Unsupported value/],
      [
        'a filter of tags without a range',
        { ref: { tagFilter: { pattern: 'x' } } },
        /ref\.tagFilter needs ref\.semver/,
      ],
      ['an empty pattern', { ref: { semver: '*', tagFilter: { pattern: '' } } }, /pattern: Invalid value/],
      [
        'a ninth further address',
        { fallbackURLs: Array.from({ length: 9 }, () => url) },
        /spec\.fallbackURLs: Too many/,
      ],
      ['a file for a further address', { fallbackURLs: ['file:///etc'] }, /spec\.fallbackURLs\[0\]: Invalid value/],
      ['an unknown way with links', { symlinks: 'Follow' }, /spec\.symlinks: Unsupported value/],
    ]
    for (const [name, spec, message] of refused) {
      it(`refuses ${name}`, () => assert.rejects(createGit(spec), message))
    }

    it('refuses an object without a spec', () => assert.rejects(create(GitRepositoryKind, {}), /spec: Required value/))

    const refusedStatus: [name: string, status: object, message: RegExp][] = [
      [
        'a malformed digest',
        { artifact: { ...stored, path: 'p', digest: 'abc' } },
        /status\.artifact\.digest: Invalid value/,
      ],
      [
        'an artifact without a digest',
        { artifact: { ...stored, path: 'p' } },
        /status\.artifact\.digest: Required value/,
      ],
      ['an artifact without a path', { artifact: { ...stored, digest } }, /status\.artifact\.path: Required value/],
      [
        'a condition that is maybe true',
        { conditions: [condition({ status: 'Maybe' })] },
        /conditions\[0\]\.status: Unsupported value/,
      ],
      [
        'a reason of two words',
        { conditions: [condition({ reason: 'two words' })] },
        /conditions\[0\]\.reason: Invalid value/,
      ],
      [
        'a condition without a time',
        { conditions: [condition({ lastTransitionTime: 'now' })] },
        /lastTransitionTime: Invalid value/,
      ],
    ]
    for (const [name, status, message] of refusedStatus) {
      it(`refuses ${name}`, async () => {
        const repository = await createGit({})
        await assert.rejects(patchStatus(GitRepositoryKind, repository, status), message)
      })
    }

    it('shows url, readiness and message in a table, under its short name and its category', async () => {
      const repository = await createGit({ url: 'https://git.example.com/table' })
      await patchStatus(GitRepositoryKind, repository, { conditions: [condition()] })
      const table = await kubectl.run(['get', 'gitrepo', repository.metadata.name])
      assert.match(table, /^NAME +URL +AGE +READY +STATUS$/m)
      assert.match(table, /^object-\d+ +https:\/\/git\.example\.com\/table +\d+s +True +stored$/m)
      assert.match(
        await kubectl.run(['get', 'fluxcd-sources', '-o', 'name']),
        /gitrepository\.source\.toolkit\.fluxcd\.io\/object-/,
      )
    })
  })

  describe('Artifact', () => {
    const accepted: Record<string, object> = {
      'only what is required': {},
      'an empty revision': { revision: '' },
      'all fields': { digest, size: 1, metadata: { a: 'b' } },
      'a digest of another algorithm': { digest: `sha512:${'a'.repeat(128)}` },
    }
    for (const [name, spec] of Object.entries(accepted)) {
      it(`accepts ${name}`, async () => {
        assert.deepEqual((await createArtifact(spec)).spec, { ...stored, ...spec })
      })
    }

    it('accepts an object without a spec, as the published one does', async () => {
      const { spec } = await create(ArtifactKind, {})
      assert.equal(spec, undefined)
    })

    const refused: [name: string, spec: object, message: RegExp][] = [
      ['a digest without an algorithm', { digest: 'a'.repeat(64) }, /spec\.digest: Invalid value/],
      ['no url', { url: undefined }, /spec\.url: Required value/],
      ['no revision', { revision: undefined }, /spec\.revision: Required value/],
      ['no time', { lastUpdateTime: undefined }, /spec\.lastUpdateTime: Required value/],
      ['a time that is none', { lastUpdateTime: 'yesterday' }, /spec\.lastUpdateTime: Invalid value/],
      ['a size that is no number', { size: 'big' }, /spec\.size: Invalid value/],
      ['metadata that is no text', { metadata: { a: 1 } }, /spec\.metadata\.a: Invalid value/],
    ]
    for (const [name, spec, message] of refused) {
      it(`refuses ${name}`, () => assert.rejects(createArtifact(spec), message))
    }

    it('shows owner, revision and url in a table, and the digest in a wide one', async () => {
      const { metadata: owner } = await createGit({})
      const reference = {
        apiVersion: apiVersionOf(GitRepositoryKind),
        kind: 'GitRepository',
        name: owner.name,
        uid: owner.uid ?? '',
      }
      const metadata = { name: 'table', namespace: 'default', ownerReferences: [reference] }
      await create(ArtifactKind, { metadata, spec: { ...stored, digest } })
      const row = `table +GitRepository +${owner.name} +main@sha1:abc`
      const table = await kubectl.run(['get', 'art', 'table'])
      assert.match(table, /^NAME +OWNER KIND +OWNER +REVISION +URL +AGE$/m)
      assert.match(table, new RegExp(`^${row} +http://files/x +\\d+s$`, 'm'))
      const wide = await kubectl.run(['get', 'art', 'table', '-o', 'wide'])
      assert.match(wide, new RegExp(`^${row} +${digest} +http://files/x +\\d+s$`, 'm'))
    })
  })
})

function condition(change: object = {}): object {
  const lastTransitionTime = stored.lastUpdateTime
  return {
    type: 'Ready',
    status: 'True',
    reason: 'Succeeded',
    message: 'stored',
    lastTransitionTime,
    observedGeneration: 1,
    ...change,
  }
}
