import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { Agent, request } from 'undici'
import { isAlive } from '../tools/cache.ts'
import { eventually } from '../../controllers/runtime/eventually.ts'
import { startControlPlane, type ControlPlane } from './index.ts'

const configMaps = '/api/v1/namespaces/default/configmaps'
// The first start may have to build the programs.
const startTimeoutMs = 30 * 60_000
const testTimeoutMs = 120_000

interface Kubeconfig {
  clusters: { cluster: { server: string; 'certificate-authority-data': string } }[]
  users: { user: { 'client-certificate-data': string; 'client-key-data': string } }[]
}

interface KubeObject {
  metadata: { name: string; uid: string; resourceVersion: string }
  data: Record<string, string>
}

describe('the control plane', function () {
  this.timeout(testTimeoutMs)
  let cluster: ControlPlane

  before(async function () {
    this.timeout(startTimeoutMs)
    cluster = await startControlPlane()
  })
  after(async () => {
    await cluster?.stop()
  })

  it('tells the version of Kubernetes that go.mod pins', async () => {
    const { gitVersion } = (await call(cluster.kubeconfig, 'GET', '/version')).body
    const module = await readFile(join(import.meta.dirname, 'build', 'go.mod'), 'utf8')
    assert.ok(module.includes(`k8s.io/kubernetes ${gitVersion}\n`), gitVersion)
  })

  it('stores a ConfigMap that a plain https request creates', async () => {
    await createConfigMap(cluster.kubeconfig, 'plain', { data: { greeting: 'hello' } })
    const { status, body } = await call(cluster.kubeconfig, 'GET', `${configMaps}/plain`)
    assert.equal(status, 200)
    assert.deepEqual(body.data, { greeting: 'hello' })
  })

  it('collects what an owner reference makes garbage, and nothing else', async () => {
    const owner = await createConfigMap(cluster.kubeconfig, 'owner')
    const reference = { apiVersion: 'v1', kind: 'ConfigMap', name: 'owner', uid: owner.metadata.uid }
    await createConfigMap(cluster.kubeconfig, 'dependent', { metadata: { ownerReferences: [reference] } })
    await createConfigMap(cluster.kubeconfig, 'bystander')

    assert.equal((await call(cluster.kubeconfig, 'GET', `${configMaps}/dependent`)).status, 200)
    await call(cluster.kubeconfig, 'DELETE', `${configMaps}/owner`)
    await eventually(async () => (await call(cluster.kubeconfig, 'GET', `${configMaps}/dependent`)).status === 404)
    assert.equal((await call(cluster.kubeconfig, 'GET', `${configMaps}/bystander`)).status, 200)
  })

  it('lets an unknown user do nothing until RBAC gives a right', async () => {
    const kubeconfig = await cluster.userKubeconfig('jane', ['readers'])
    const refused = await call(kubeconfig, 'GET', configMaps)
    assert.equal(refused.status, 403)
    assert.match(refused.body.message, /User "jane" cannot list resource "configmaps"/)

    await call(cluster.kubeconfig, 'POST', '/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings', {
      metadata: { name: 'readers' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'view' },
      subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'Group', name: 'readers' }],
    })
    await eventually(async () => (await call(kubeconfig, 'GET', configMaps)).status === 200)
    assert.equal((await call(kubeconfig, 'GET', '/api/v1/namespaces/default/secrets')).status, 403)
  })

  it('refuses an owner reference that blocks the deletion of what its writer may not finalize', async () => {
    const owner = await createConfigMap(cluster.kubeconfig, 'guarded')
    const rbac = '/apis/rbac.authorization.k8s.io/v1/namespaces/default'
    await call(cluster.kubeconfig, 'POST', `${rbac}/roles`, {
      metadata: { name: 'creator' },
      rules: [{ apiGroups: [''], resources: ['configmaps'], verbs: ['create'] }],
    })
    await call(cluster.kubeconfig, 'POST', `${rbac}/rolebindings`, {
      metadata: { name: 'creator' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'creator' },
      subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: 'creator' }],
    })
    const kubeconfig = await cluster.userKubeconfig('creator')
    await eventually(() => createConfigMap(kubeconfig, 'unowned'))
    const reference = { apiVersion: 'v1', kind: 'ConfigMap', name: 'guarded', uid: owner.metadata.uid }
    const { status, body } = await call(kubeconfig, 'POST', configMaps, {
      metadata: { name: 'blocking', ownerReferences: [{ ...reference, blockOwnerDeletion: true }] },
    })
    assert.equal(status, 403)
    assert.match(body.message, /cannot set blockOwnerDeletion/)
  })

  it('keeps its data when the API server restarts, also after SIGKILL', async () => {
    const before = await createConfigMap(cluster.kubeconfig, 'survivor', { data: { of: 'a restart' } })
    const pids = cluster.pids
    await cluster.restartApiServer()
    assert.notDeepEqual(cluster.pids, pids)
    assert.deepEqual((await call(cluster.kubeconfig, 'GET', `${configMaps}/survivor`)).body, before)

    await cluster.killApiServer()
    await assert.rejects(call(cluster.kubeconfig, 'GET', configMaps), { code: 'ECONNREFUSED' })
    await cluster.startApiServer()
    assert.deepEqual((await call(cluster.kubeconfig, 'GET', `${configMaps}/survivor`)).body, before)
  })

  it('leaves no process and no file behind', async () => {
    const { pids } = cluster
    const folder = dirname(dirname(cluster.kubeconfig))
    assert.equal(pids.length, 3)
    assert.ok(pids.every(isAlive))
    await cluster.stop()
    assert.deepEqual(pids.filter(isAlive), [])
    assert.deepEqual(cluster.pids, [])
    await assert.rejects(stat(folder), { code: 'ENOENT' })
  })

  it('dies with a parent that is killed, and the next start removes what that left', async () => {
    const { pids, folder } = await startAndKillParent()
    assert.equal(pids.length, 3)
    await eventually(() => !pids.some(isAlive))
    assert.ok(await stat(folder))
    await using next = await startControlPlane()
    assert.ok(next.url)
    await assert.rejects(stat(folder), { code: 'ENOENT' })
  })

  it('says why when a program of it does not start, and leaves nothing', async () => {
    const assets = await mkdtemp(join(tmpdir(), 'broken-control-plane-'))
    const mine = new RegExp(`^openflux-[0-9a-f]+-${process.pid}-`)
    const folders = async () => (await readdir(tmpdir())).filter((name) => mine.test(name))
    const others = await folders()
    const before = process.env.KUBEBUILDER_ASSETS
    try {
      const script = '#!/bin/sh\necho "the disk is on fire" >&2\nexit 4\n'
      await writeFile(join(assets, 'etcd'), script, { mode: 0o755 })
      await writeFile(join(assets, 'kube-apiserver'), script, { mode: 0o755 })
      process.env.KUBEBUILDER_ASSETS = assets
      await assert.rejects(startControlPlane(), /etcd ended with code 4 before readiness.*\nthe disk is on fire/s)
    } finally {
      if (before === undefined) delete process.env.KUBEBUILDER_ASSETS
      else process.env.KUBEBUILDER_ASSETS = before
      await rm(assets, { recursive: true })
    }
    assert.deepEqual(await folders(), others)
  })

  it('knows the garbage of a custom kind at once when its CRD is installed by the start', async () => {
    await using custom = await startControlPlane({ crds: [join(import.meta.dirname, 'fixtures')] })
    const widgets = '/apis/test.openflux.io/v1/namespaces/default/widgets'
    const owner = await createConfigMap(custom.kubeconfig, 'owner')
    const reference = { apiVersion: 'v1', kind: 'ConfigMap', name: 'owner', uid: owner.metadata.uid }
    const { status } = await call(custom.kubeconfig, 'POST', widgets, {
      apiVersion: 'test.openflux.io/v1',
      kind: 'Widget',
      metadata: { name: 'dependent', ownerReferences: [reference] },
    })
    assert.equal(status, 201)
    await call(custom.kubeconfig, 'DELETE', `${configMaps}/owner`)
    const dependent = () => call(custom.kubeconfig, 'GET', `${widgets}/dependent`)
    await eventually(async () => (await dependent()).status === 404, 10_000)
  })
})

async function startAndKillParent(): Promise<{ pids: number[]; folder: string }> {
  const script = `
    import { startControlPlane } from ${JSON.stringify(join(import.meta.dirname, 'index.ts'))}
    const { pids, kubeconfig } = await startControlPlane()
    console.log(JSON.stringify({ pids, kubeconfig }))`
  const parent = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [line] = await once(createInterface({ input: parent.stdout }), 'line')
  const { pids, kubeconfig }: { pids: number[]; kubeconfig: string } = JSON.parse(String(line))
  assert.ok(pids.every(isAlive))
  parent.kill('SIGKILL')
  await once(parent, 'exit')
  return { pids, folder: dirname(dirname(kubeconfig)) }
}

async function createConfigMap(
  kubeconfig: string,
  name: string,
  rest: { metadata?: object; data?: object } = {},
): Promise<KubeObject> {
  const object = { ...rest, metadata: { ...rest.metadata, name } }
  const { status, body } = await call(kubeconfig, 'POST', configMaps, object)
  assert.equal(status, 201, JSON.stringify(body))
  return body
}

function decode(base64: string): Buffer {
  return Buffer.from(base64, 'base64')
}

/** One request with the client certificate of a kubeconfig. */
async function call(kubeconfig: string, method: 'GET' | 'POST' | 'DELETE', path: string, body?: object) {
  const config: Kubeconfig = JSON.parse(await readFile(kubeconfig, 'utf8'))
  const { cluster } = config.clusters[0]!
  const { user } = config.users[0]!
  const agent = new Agent({
    connect: {
      ca: decode(cluster['certificate-authority-data']),
      cert: decode(user['client-certificate-data']),
      key: decode(user['client-key-data']),
    },
  })
  try {
    const response = await request(new URL(path, cluster.server), {
      method,
      dispatcher: agent,
      headers: { 'content-type': 'application/json' },
      body: body ? JSON.stringify(body) : null,
    })
    return { status: response.statusCode, body: JSON.parse(await response.body.text()) }
  } finally {
    await agent.close()
  }
}
