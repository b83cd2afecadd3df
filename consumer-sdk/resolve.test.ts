import assert from 'node:assert/strict'
import { artifactInformerOptions } from '../controllers/artifact/artifact.ts'
import type { Artifact } from '../controllers/artifact/types.ts'
import { type ReconcileError, StalledError, WaitingError } from '../controllers/runtime/errors.ts'
import { Indexer } from '../controllers/runtime/indexer.ts'
import { type ResolvePolicy, resolveArtifact } from './resolve.ts'
import type { SourceRef } from './source-ref.ts'
import { artifactOf, ownerOf } from './test-support.ts'

const open: ResolvePolicy = { noCrossNamespaceRefs: false }
const closed: ResolvePolicy = { noCrossNamespaceRefs: true }
const git: SourceRef = { kind: 'GitRepository', name: 'app' }

function resolve(artifacts: Artifact[], ref: SourceRef, policy = closed, namespace = 'apps') {
  const indexer = new Indexer<Artifact>(artifactInformerOptions.indexes)
  for (const artifact of artifacts) indexer.set(artifact)
  return resolveArtifact(indexer, ref, namespace, policy)
}

describe('resolving a source reference', () => {
  it('finds the artifact by its owner, whatever the version in the owner reference', () => {
    const owners = [ownerOf('GitRepository', 'app', 'source.toolkit.fluxcd.io/v1beta9')]
    const found = resolve([artifactOf('other', []), artifactOf('mine', owners, { size: 7, metadata: { a: 'b' } })], git)
    assert.equal(found.name, 'mine')
    assert.equal(found.namespace, 'apps')
    assert.equal(found.size, 7)
    assert.deepEqual(found.metadata, { a: 'b' })
  })

  it('finds it by any of several owners, and by a core-group kind without any flag on the reference', () => {
    const artifact = artifactOf('mine', [ownerOf('Bucket', 'x'), ownerOf('ConfigMap', 'app', 'v1')])
    assert.equal(resolve([artifact], { apiVersion: 'v1', kind: 'ConfigMap', name: 'app' }).name, 'mine')
    assert.equal(resolve([artifact], { kind: 'Bucket', name: 'x' }).name, 'mine')
  })

  it('takes a direct reference for the Artifact itself, and not for what that one owns', () => {
    const input = artifactOf('input', [ownerOf('GitRepository', 'app')])
    const output = artifactOf('output', [ownerOf('Artifact', 'input', 'openfluxcd.ocm.software/v1alpha1')])
    assert.equal(resolve([input, output], { kind: 'Artifact', name: 'input' }).name, 'input')
    fails(
      [output],
      { kind: 'Artifact', name: 'input' },
      closed,
      WaitingError,
      'ArtifactNotFound',
      /Artifact\/apps\/input/,
    )
  })

  it('looks for the owner in the namespace of the reference', () => {
    const artifact = artifactOf('mine', [ownerOf('GitRepository', 'app')])
    assert.equal(resolve([artifact], { ...git, namespace: 'apps' }, open, 'team').name, 'mine')
    fails([artifact], git, open, WaitingError, 'ArtifactNotFound', /GitRepository\/team\/app/, 'team')
  })

  const owner = ownerOf('GitRepository', 'app')
  it('prefers an artifact that stays to one that is being deleted', () => {
    assert.equal(resolve([deleted(artifactOf('old', [owner])), artifactOf('new', [owner])], git).name, 'new')
  })

  type Failure = [
    string,
    Artifact[],
    SourceRef,
    ResolvePolicy,
    typeof StalledError | typeof WaitingError,
    string,
    RegExp,
  ]
  const failures: Failure[] = [
    [
      'none is there',
      [],
      git,
      closed,
      WaitingError,
      'ArtifactNotFound',
      /^no artifact found for source\.toolkit\.fluxcd\.io\/GitRepository\/apps\/app$/,
    ],
    [
      'another kind of that name has one',
      [artifactOf('a', [ownerOf('Bucket', 'app')])],
      git,
      closed,
      WaitingError,
      'ArtifactNotFound',
      /./,
    ],
    [
      'another group has one',
      [artifactOf('a', [ownerOf('GitRepository', 'app', 'example.com/v1')])],
      git,
      closed,
      WaitingError,
      'ArtifactNotFound',
      /./,
    ],
    [
      'the only one is being deleted',
      [deleted(artifactOf('a', [owner]))],
      git,
      closed,
      WaitingError,
      'ArtifactNotFound',
      /being deleted/,
    ],
    [
      'there are several',
      [artifactOf('b', [owner]), artifactOf('a', [owner])],
      git,
      closed,
      StalledError,
      'AmbiguousArtifact',
      /: a, b$/,
    ],
    [
      'the owner was replaced',
      [artifactOf('a', [owner]), artifactOf('b', [{ ...owner, uid: 'new' }])],
      git,
      closed,
      WaitingError,
      'OwnerReplaced',
      /a, b$/,
    ],
    [
      'the namespace is another',
      [artifactOf('a', [owner])],
      { ...git, namespace: 'other' },
      closed,
      StalledError,
      'AccessDenied',
      /^can't access 'GitRepository\/other\/app', cross-namespace references have been blocked$/,
    ],
    [
      'the kind is not allowed',
      [artifactOf('a', [owner])],
      git,
      { ...closed, allowedKinds: [{ group: '', kind: 'ConfigMap' }] },
      StalledError,
      'SourceKindNotAllowed',
      /kind GitRepository\.source\.toolkit\.fluxcd\.io are not allowed, only ConfigMap$/,
    ],
    [
      'it has no spec',
      [{ metadata: artifactOf('a', [owner]).metadata }],
      git,
      closed,
      WaitingError,
      'ArtifactInvalid',
      /it has no spec/,
    ],
    [
      'it has no revision',
      [artifactOf('a', [owner], { revision: '' })],
      git,
      closed,
      WaitingError,
      'ArtifactInvalid',
      /spec\.revision/,
    ],
    [
      'it has no digest',
      [artifactOf('a', [owner], { digest: '' })],
      git,
      closed,
      WaitingError,
      'ArtifactInvalid',
      /spec\.digest is missing/,
    ],
    [
      'its digest is of an unknown algorithm',
      [artifactOf('a', [owner], { digest: 'md5:00' })],
      git,
      closed,
      WaitingError,
      'ArtifactInvalid',
      /spec\.digest.*md5/,
    ],
    [
      'its size is negative',
      [artifactOf('a', [owner], { size: -1 })],
      git,
      closed,
      WaitingError,
      'ArtifactInvalid',
      /spec\.size/,
    ],
    [
      'its url is a file',
      [artifactOf('a', [owner], { url: 'file:///etc/passwd' })],
      git,
      closed,
      WaitingError,
      'ArtifactInvalid',
      /http:\/\/ or https:\/\//,
    ],
    [
      'its url is none',
      [artifactOf('a', [owner], { url: 'somewhere' })],
      git,
      closed,
      WaitingError,
      'ArtifactInvalid',
      /not a URL/,
    ],
    [
      'its url is split by a line break',
      [artifactOf('a', [owner], { url: 'http://a\n.example/x' })],
      git,
      closed,
      WaitingError,
      'ArtifactInvalid',
      /control characters/,
    ],
  ]
  for (const [what, artifacts, ref, policy, type, reason, message] of failures)
    it(`says ${reason} where ${what}`, () => fails(artifacts, ref, policy, type, reason, message))

  it('never repeats a password in a url', () => {
    const artifact = artifactOf('a', [owner], { url: 'http://me:hunter2@host.example/x' })
    assert.throws(
      () => resolve([artifact], git),
      (err: Error) => /must not hold a user name or password/.test(err.message) && !err.message.includes('hunter2'),
    )
  })
})

function fails(
  artifacts: Artifact[],
  ref: SourceRef,
  policy: ResolvePolicy,
  type: new (...args: never[]) => ReconcileError,
  reason: string,
  message: RegExp,
  namespace?: string,
): void {
  assert.throws(
    () => resolve(artifacts, ref, policy, namespace),
    (err: ReconcileError) => {
      assert.ok(err instanceof type, String(err))
      assert.equal(err.reason, reason)
      assert.match(err.message, message)
      return true
    },
  )
}

function deleted(artifact: Artifact): Artifact {
  return { ...artifact, metadata: { ...artifact.metadata, deletionTimestamp: '2026-01-02T03:04:05Z' } }
}
