import assert from 'node:assert/strict'
import { type FaultProxy, startFaultProxy } from '../../e2e/tools/fault-proxy.ts'
import { clientFor, makeNamespace, sharedControlPlane } from '../../e2e/shared-control-plane.ts'
import type { ControlPlane } from '../../e2e/control-plane/index.ts'
import { Client } from './client.ts'
import { eventually, eventuallyHolds } from './eventually.ts'
import { type Change, Informer } from './informer.ts'
import type { Kind, KubeObject } from './kind.ts'
import { makeLogger } from './log.ts'

interface ConfigMap extends KubeObject {
  data?: Record<string, string>
}
const ConfigMapKind: Kind<ConfigMap> = { group: '', version: 'v1', kind: 'ConfigMap', plural: 'configmaps' }

describe('informer on a real API server', function () {
  this.timeout(180_000)
  let controlPlane: ControlPlane
  let direct: Client
  let client: Client
  let namespace: string
  let proxy: FaultProxy
  let informer: Informer<ConfigMap>
  let stop: AbortController
  let running: Promise<void>
  let changes: Change<ConfigMap>[]

  beforeEach(async () => {
    controlPlane = await sharedControlPlane()
    direct = clientFor(controlPlane.kubeconfig)
    namespace = await makeNamespace(direct)
    proxy = await startFaultProxy(Number(new URL(controlPlane.url).port))
    client = clientFor(controlPlane.kubeconfig, 'informer-test', `https://127.0.0.1:${proxy.port}`)
    informer = new Informer(client, makeLogger('error'), ConfigMapKind, {
      selection: { namespace },
      indexes: { value: (object) => Object.values(object.data ?? {}) },
    })
    changes = []
    informer.onChange((change) => changes.push(change))
    stop = new AbortController()
    running = informer.run(stop.signal)
    await informer.whenSynced()
  })

  afterEach(async () => {
    stop.abort()
    await running
    await proxy.stop()
  })

  const put = (name: string, value: string) =>
    direct.apply(ConfigMapKind, { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, data: { value } })

  /** Cuts the watch, and lets the next one ask for the version of a client that was away for hours: the server's history does not reach back that far. */
  function missWhile(work: () => Promise<void>): void {
    let watches = 0
    client.watch = async (kind, selection, version, seconds, signal) => {
      const first = watches++ === 0
      if (first) await work()
      return Client.prototype.watch.call(client, kind, selection, first ? '1' : version, seconds, signal)
    }
    proxy.reset()
  }

  /** The proof of an informer: its cache is what a fresh list gives. */
  async function assertEqualsList(): Promise<void> {
    const tell = (objects: Iterable<ConfigMap>) =>
      [...objects]
        .map(({ metadata, data }) => JSON.stringify([metadata.name, metadata.resourceVersion, data]))
        .toSorted()
    assert.deepEqual(tell(informer.cache.list()), tell(await direct.list(ConfigMapKind, { namespace })))
  }

  it('follows creates, updates and deletes, and keeps its indexes', async () => {
    await put('a', 'one')
    await put('b', 'two')
    await put('a', 'three')
    await direct.delete(ConfigMapKind, { namespace, name: 'b' })
    await eventually(() => changes.some(({ type, object }) => type === 'deleted' && object.metadata.name === 'b'))
    await eventuallyHolds(assertEqualsList)
    assert.deepEqual(
      informer.cache.by('value', 'three').map((object) => object.metadata.name),
      ['a'],
    )
    assert.deepEqual(informer.cache.by('value', 'one'), [])
    assert.ok(!('managedFields' in informer.cache.get(`${namespace}/a`)!.metadata))
  })

  it('hears of what happened behind a connection that was cut without notice', async () => {
    await put('a', 'one')
    await eventually(() => informer.cache.by('value', 'one').length === 1)
    proxy.freeze()
    await put('a', 'two')
    await put('b', 'new')
    await direct.delete(ConfigMapKind, { namespace, name: 'kube-root-ca.crt' })
    await eventually(
      () => informer.cache.by('value', 'two').length === 1 && informer.cache.by('value', 'new').length === 1,
      30_000, // what is promised, not a guess at the speed of a machine
    )
    await eventuallyHolds(assertEqualsList)
  })

  it('resumes after resets and half a line without losing or repeating anything', async () => {
    for (let i = 0; i < 5; i++) {
      await put('a', `value-${i}`)
      if (i % 2) proxy.reset()
      else proxy.truncate(10)
      await put(`extra-${i}`, 'x')
      await eventually(() => informer.cache.by('value', `value-${i}`).length === 1)
    }
    await eventuallyHolds(assertEqualsList)
    const added = changes.filter(({ type }) => type === 'added').map(({ object }) => object.metadata.name)
    assert.deepEqual(added, [...new Set(added)])
  })

  it('lists again when its version is too old, and reports what changed meanwhile as single events', async () => {
    await put('stays', 'same')
    await put('goes', 'old')
    await eventually(() => informer.cache.get(`${namespace}/goes`))
    changes.length = 0
    missWhile(async () => {
      await direct.delete(ConfigMapKind, { namespace, name: 'goes' })
      await put('comes', 'new')
    })
    await eventually(() => informer.cache.get(`${namespace}/comes`))
    await eventuallyHolds(assertEqualsList)
    const seen = changes
      .map(({ type, object }) => `${type} ${object.metadata.name}`)
      .filter((line) => !line.includes('kube-root-ca'))
    assert.deepEqual(seen.sort(), ['added comes', 'deleted goes'])
  })

  it('tells a re-created object of the same name from its predecessor', async () => {
    await put('a', 'one')
    await eventually(() => informer.cache.get(`${namespace}/a`))
    missWhile(async () => {
      await direct.delete(ConfigMapKind, { namespace, name: 'a' })
      await put('a', 'two')
    })
    await eventually(() => informer.cache.by('value', 'two').length === 1)
    const types = changes.filter(({ object }) => object.metadata.name === 'a').map(({ type }) => type)
    assert.deepEqual(types, ['added', 'deleted', 'added'])
  })

  it('survives an API server that is away for a while, without a hot loop', async () => {
    await put('a', 'one')
    await eventually(() => informer.cache.get(`${namespace}/a`))
    const before = proxy.accepted()
    await controlPlane.restartApiServer(20_000)
    const during = proxy.accepted() - before
    await put('a', 'two')
    await eventually(() => informer.cache.by('value', 'two').length === 1)
    await eventuallyHolds(assertEqualsList)
    assert.ok(during < 60, `${during} connections while the server was away`)
    assert.equal(changes.filter(({ type }) => type === 'deleted').length, 0)
  })

  it('does not let one failing handler cost the others their events', async () => {
    informer.onChange(() => {
      throw new Error('handler at fault')
    })
    const seen: string[] = []
    informer.onChange(({ object }) => seen.push(object.metadata.name))
    await put('a', 'one')
    await eventually(() => seen.includes('a'))
  })
})
