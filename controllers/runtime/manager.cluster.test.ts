import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { request } from 'undici'
import { clientFor, makeNamespace, sharedControlPlane } from '../../e2e/shared-control-plane.ts'
import type { Client } from './client.ts'
import { eventually } from './eventually.ts'
import { ReconcileError, StalledError } from './errors.ts'
import { makeCommand, type RuntimeFlags } from './flags.ts'
import type { Kind, KubeObject } from './kind.ts'
import { Manager } from './manager.ts'
import { registry } from './metrics.ts'

const ConfigMapKind: Kind<KubeObject> = { group: '', version: 'v1', kind: 'ConfigMap', plural: 'configmaps' }

describe('manager on a real API server', function () {
  this.timeout(60_000)
  let client: Client
  let namespace: string

  beforeEach(async () => {
    client = clientFor((await sharedControlPlane()).kubeconfig)
    namespace = await makeNamespace(client)
  })

  async function makeManager(...flags: string[]): Promise<Manager> {
    const { kubeconfig } = await sharedControlPlane()
    const command = makeCommand('test', 'a manager under test')
    const own = [
      `--kubeconfig=${kubeconfig}`,
      '--watch-all-namespaces=false',
      `--runtime-namespace=${namespace}`,
      '--log-level=error',
    ]
    const addresses = [
      '--metrics-addr=127.0.0.1:0',
      '--health-addr=127.0.0.1:0',
      '--min-retry-delay=50ms',
      '--max-retry-delay=200ms',
    ]
    command.parse([...own, ...addresses, ...flags], { from: 'user' })
    return new Manager(command.opts<RuntimeFlags>(), 'manager-test')
  }

  const create = (name: string) => client.create(ConfigMapKind, { metadata: { name, namespace } })

  it('ends when it is stopped at any moment of its start', async () => {
    for (const ms of [0, 1, 5, 10, 20, 50, 100, 300]) {
      for (const election of [false, true]) {
        const manager = await makeManager(`--enable-leader-election=${election}`)
        const informer = manager.informer(ConfigMapKind, { selection: manager.namespaces })
        manager.add({ kind: ConfigMapKind, component: `stopped-${ms}`, informer, reconcile: async () => ({}) })
        const stop = new AbortController()
        const running = manager.run(stop.signal)
        await delay(ms)
        stop.abort()
        await running
      }
    }
  })

  it('runs one pass at a time for an object, lets the others go on beside one that fails, and counts as dashboards expect', async () => {
    const manager = await makeManager('--concurrent=4')
    const informer = manager.informer(ConfigMapKind, { selection: manager.namespaces })
    const passes: Record<string, number> = {}
    const active = new Set<string>()
    manager.add({
      kind: ConfigMapKind,
      component: 'passes',
      informer,
      async reconcile({ name }) {
        assert.ok(!active.has(name), `two passes over ${name} at once`)
        active.add(name)
        passes[name] = (passes[name] ?? 0) + 1
        await delay(5)
        active.delete(name)
        if (name === 'poison') throw new TypeError('a fault of the program')
        if (name === 'failing') throw new ReconcileError('Expected', 'not now')
        if (name === 'stalled') throw new StalledError('Never', 'not ever')
        return name === 'again' ? { requeueAfterMs: 20 } : {}
      },
    })
    const stop = new AbortController()
    const running = manager.run(stop.signal)
    for (const name of ['poison', 'failing', 'stalled', 'again', 'good']) await create(name)
    await eventually(() => (passes.poison ?? 0) > 3 && (passes.failing ?? 0) > 3 && (passes.again ?? 0) > 3)
    assert.equal(passes.good, 1)
    assert.equal(passes.stalled, 1)
    const text = await registry.metrics()
    for (const line of [
      /controller_runtime_reconcile_total\{controller="configmap",result="error"\} \d/,
      /controller_runtime_reconcile_total\{controller="configmap",result="requeue_after"\} \d/,
      /controller_runtime_terminal_reconcile_errors_total\{controller="configmap"\} 1/,
      /gotk_reconcile_duration_seconds_count\{kind="ConfigMap",name="good",namespace="[^"]+"\} 1/,
      /workqueue_adds_total\{name="configmap"\} \d/,
      /rest_client_requests_total\{method="GET",code="200",host="127/,
    ])
      assert.match(text, line)
    stop.abort()
    await running
  })

  it('is healthy from the start, and ready only once its informers are in step', async () => {
    const manager = await makeManager()
    let port: number | undefined
    manager.log.info = (fields: unknown) => {
      if (typeof fields === 'object' && fields && 'healthPort' in fields) port = Number(fields.healthPort)
    }
    const missing: Kind<KubeObject> = { group: 'nobody.example', version: 'v1', kind: 'Nothing', plural: 'nothings' }
    manager.informer(missing)
    const stop = new AbortController()
    const running = manager.run(stop.signal)
    await eventually(() => port)
    const get = async (path: string) => {
      const { statusCode, body } = await request(`http://127.0.0.1:${port}${path}`)
      return `${statusCode} ${await body.text()}`
    }
    assert.equal(await get('/healthz'), '200 ok')
    assert.equal(await get('/readyz'), '503 informers: waiting for the first list of Nothing')
    assert.match(await get('/'), /^404/)
    stop.abort()
    await running
  })

  it('refuses to start where a unit says so, and says why', async () => {
    const manager = await makeManager()
    const informer = manager.informer(ConfigMapKind, { selection: manager.namespaces })
    manager.add({
      kind: ConfigMapKind,
      component: 'refused',
      informer,
      reconcile: async () => ({}),
      beforeStart: () => Promise.reject(new Error('beside another one')),
    })
    await assert.rejects(manager.run(new AbortController().signal), /beside another one/)
  })
})
