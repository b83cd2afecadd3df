import assert from 'node:assert/strict'
import { clientFor, makeNamespace, sharedControlPlane } from '../../e2e/shared-control-plane.ts'
import { artifactInformerOptions } from '../artifact/artifact.ts'
import { type Artifact, ArtifactKind } from '../artifact/types.ts'
import type { Client } from '../runtime/client.ts'
import type { Context } from '../runtime/context.ts'
import { eventually } from '../runtime/eventually.ts'
import { Informer } from '../runtime/informer.ts'
import { apiVersionOf, type Kind, type OwnerReference } from '../runtime/kind.ts'
import { makeLogger } from '../runtime/log.ts'
import { SecretKind } from '../runtime/secret.ts'
import { SecretWatches } from '../runtime/secret-watches.ts'
import { Dependencies } from './dependencies.ts'
import type { SourceContext } from './source.ts'

const LibKind: Kind = { group: 'example.com', version: 'v1', kind: 'Lib', plural: 'libs' }

describe('what objects need of others, on a real API server', function () {
  this.timeout(60_000)
  let client: Client
  let namespace: string
  let secrets: SecretWatches
  let artifacts: Informer<Artifact>
  let dependencies: Dependencies
  let woken: string[]
  let stop: AbortController
  let running: Promise<void>

  beforeEach(async () => {
    client = clientFor((await sharedControlPlane()).kubeconfig)
    namespace = await makeNamespace(client)
    const log = makeLogger('error')
    secrets = new SecretWatches({ client, log })
    artifacts = new Informer(client, log, ArtifactKind, { ...artifactInformerOptions, selection: { namespace } })
    woken = []
    const open = () => assert.fail('nothing is opened here')
    dependencies = new Dependencies({ secrets, artifacts, open, enqueue: (key) => woken.push(key.split('/')[1]!) })
    stop = new AbortController()
    running = artifacts.run(stop.signal)
    await artifacts.whenSynced()
  })
  afterEach(async () => {
    stop.abort()
    await running
    await secrets.close()
  })

  /** A pass over an object. */
  async function pass(name: string, work: (ctx: SourceContext) => unknown, signal = stop.signal): Promise<void> {
    const uses = dependencies.begin({ namespace, name })
    try {
      await work(uses.of({ signal: stop.signal } as Context))
    } finally {
      uses.end(signal)
    }
  }
  const lib = (ctx: SourceContext) => ctx.artifacts.of(LibKind, 'lib')
  const ownedBy = (name: string): OwnerReference[] => [
    { apiVersion: apiVersionOf(LibKind), kind: 'Lib', name, uid: name },
  ]
  const putArtifact = (name: string, revision: string, ownerReferences = ownedBy('lib')) =>
    client.apply(ArtifactKind, {
      apiVersion: apiVersionOf(ArtifactKind),
      kind: ArtifactKind.kind,
      metadata: { name, namespace, ownerReferences },
      spec: { url: 'http://server.example/x', revision, digest: 'sha256:00', lastUpdateTime: '2026-01-02T03:04:05Z' },
    })

  it('is watched until a pass no longer asks for it', async () => {
    for (const name of ['login', 'proxy']) await client.create(SecretKind, { metadata: { name, namespace } })
    await pass('app', async (ctx) => {
      await ctx.secrets.read('login')
      await ctx.secrets.read('proxy')
    })
    assert.equal(secrets.size, 2)
    await pass('other', (ctx) => ctx.secrets.read('login'))
    await pass('app', (ctx) => ctx.secrets.read('proxy'))
    assert.equal(secrets.size, 2)
    await pass('other', () => undefined)
    assert.equal(secrets.size, 1)
    dependencies.clear()
    assert.equal(secrets.size, 0)
  })

  it('is watched also after a pass that failed, but not once the term of leadership is over', async () => {
    await assert.rejects(pass('app', (ctx) => ctx.secrets.read('missing')))
    assert.equal(secrets.size, 1)
    await assert.rejects(pass('app', (ctx) => ctx.secrets.read('missing'), AbortSignal.abort()))
    assert.equal(secrets.size, 0)
  })

  it('brings about a pass when the Artifact of another source appears, changes, goes, or gets another owner', async () => {
    let found: Artifact | undefined
    const look = async () => {
      woken = []
      await pass('app', (ctx) => void (found = lib(ctx)))
      await pass('other', (ctx) => void ctx.artifacts.of(LibKind, 'unrelated'))
    }
    const expectWoken = () => eventually(() => woken.includes('app'))
    await look()
    assert.equal(found, undefined)
    await putArtifact('a', 'one')
    await expectWoken()
    await look()
    assert.equal(found!.spec?.revision, 'one')
    await putArtifact('a', 'two')
    await expectWoken()
    await look()
    // Whatever else is written on it is nobody's concern.
    await client.patch(ArtifactKind, { namespace, name: 'a' }, { metadata: { labels: { x: 'y' } } })
    await eventually(() => artifacts.cache.get(`${namespace}/a`)?.metadata.labels?.x === 'y')
    assert.equal(woken.length, 0)
    await putArtifact('a', 'two', ownedBy('somebody'))
    await expectWoken()
    await look()
    assert.equal(found, undefined)
    await putArtifact('a', 'two')
    await expectWoken()
    await look()
    await client.delete(ArtifactKind, { namespace, name: 'a' })
    await expectWoken()
    assert.ok(!woken.includes('other'))
  })

  it('is none of several Artifacts that claim the same source', async () => {
    await putArtifact('a', 'one')
    await putArtifact('b', 'two')
    await eventually(() => artifacts.cache.size === 2)
    await pass('app', (ctx) => assert.equal(lib(ctx), undefined))
  })
})
