import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type ControlPlane, startControlPlane } from '../e2e/control-plane/index.ts'
import { eventuallyHolds } from '../controllers/runtime/eventually.ts'
import { bytesArg } from '../controllers/source/flags.ts'
import { type Kubectl, makeKubectl } from './kubectl.ts'

const folder = import.meta.dirname
const namespace = 'openflux-system'

interface Container {
  image: string
  args: string[]
  ports: { name: string }[]
  livenessProbe: { httpGet: { port: string } }
  readinessProbe: { httpGet: { port: string } }
  securityContext: object
  volumeMounts: { name: string }[]
}

interface PodSpec {
  containers: [Container]
  securityContext: object
  volumes: { name: string; persistentVolumeClaim?: { claimName: string }; hostPath?: object }[]
}

interface Workload {
  kind: string
  spec: { selector: { matchLabels: object }; template: { metadata: { labels: object }; spec: PodSpec } }
}

interface Service {
  spec: { selector: object; ports: { port: number; targetPort: string }[] }
}

interface Policy {
  spec: { podSelector: { matchLabels: object }; ingress: { ports: { port: string }[] }[] }
}

let cluster: ControlPlane
let kubectl: Kubectl

/** The object of a resource that every base names `git-controller`. */
async function installed<T>(resource: string): Promise<T> {
  const object: T = JSON.parse(await kubectl.run(['get', resource, 'git-controller', '-n', namespace, '-o', 'json']))
  return object
}

const installedPod = async () => (await installed<Workload>('deployment')).spec.template.spec

/** What the API server says to a pod like the Deployment's in the namespace of the controllers. */
async function dryRunPod(change: (pod: PodSpec) => void): Promise<string> {
  const spec = await installedPod()
  change(spec)
  const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'probe', namespace }, spec }
  const { stdout, stderr } = await kubectl.try(['create', '--dry-run=server', '-f', '-'], JSON.stringify(pod))
  return stdout + stderr
}

const lines = (text: string): string[] => text.trim().split('\n')

describe('the kustomize bases', function () {
  this.timeout(60_000)

  before(async function () {
    this.timeout(30 * 60_000)
    cluster = await startControlPlane()
    kubectl = await makeKubectl(cluster)
  })

  after(async () => {
    await kubectl?.[Symbol.asyncDispose]()
    await cluster?.stop()
  })

  it('install one kind alone, without a warning', async () => {
    for (const line of lines(await kubectl.run(['apply', '-k', join(folder, 'git')]))) assert.match(line, / created$/)
  })

  it('install everything, without a warning and without a change to what is there', async () => {
    const results = lines(await kubectl.run(['apply', '-k', folder]))
    assert.ok(results.length > 10, results.join())
    for (const line of results) assert.match(line, / unchanged$/)
  })

  it('have samples that the API accepts', async () => {
    await kubectl.run(['wait', '--for=condition=Established', 'crd', '--all', '--timeout=30s'])
    const results = lines(await kubectl.run(['apply', '--dry-run=server', '-f', join(folder, 'samples')]))
    for (const line of results) assert.match(line, / created \(server dry run\)$/)
  })

  it('have a sample of two replicas on one volume', async () => {
    const rendered = await kubectl.run(['kustomize', join(folder, 'samples/shared-volume')])
    const list: { items: Workload[] } = JSON.parse(
      await kubectl.run(['apply', '--dry-run=client', '-o', 'json', '-f', '-'], rendered),
    )
    const claim = list.items.find(({ kind }) => kind === 'PersistentVolumeClaim')
    assert.match(JSON.stringify(claim), /"accessModes":\["ReadWriteMany"\]/)
    // The claim that is installed cannot change its mode.
    const others = { apiVersion: 'v1', kind: 'List', items: list.items.filter((object) => object !== claim) }
    const results = await kubectl.run(['apply', '--dry-run=server', '-f', '-'], JSON.stringify(others))
    assert.match(results, /deployment\.apps\/git-controller configured/)
  })

  it('select the controller’s pods, and name ports and volumes that they have', async () => {
    const { spec } = await installed<Workload>('deployment')
    const service = await installed<Service>('service')
    const policy = await installed<Policy>('networkpolicy')
    const claim = await installed<{ metadata: { name: string } }>('pvc')
    const [container] = spec.template.spec.containers
    const { labels } = spec.template.metadata
    for (const selector of [spec.selector.matchLabels, service.spec.selector, policy.spec.podSelector.matchLabels])
      assert.deepEqual({ ...labels, ...selector }, labels)
    const named = [
      ...service.spec.ports.map(({ targetPort }) => targetPort),
      ...policy.spec.ingress.flatMap(({ ports }) => ports.map(({ port }) => port)),
      container.livenessProbe.httpGet.port,
      container.readinessProbe.httpGet.port,
    ]
    const ports = container.ports.map(({ name }) => name)
    assert.deepEqual(
      named.filter((name) => !ports.includes(name)),
      [],
    )
    assert.deepEqual(
      container.volumeMounts.map(({ name }) => name),
      spec.template.spec.volumes.map(({ name }) => name),
    )
    assert.equal(spec.template.spec.volumes[0]?.persistentVolumeClaim?.claimName, claim.metadata.name)
  })

  it('leave room for artifacts beside the mirrors of repositories', async () => {
    const { args } = (await installedPod()).containers[0]
    const limit = args.find((arg) => arg.startsWith('--git-cache-max-size='))?.split('=')[1]
    const claim = await installed<{ spec: { resources: { requests: { storage: string } } } }>('pvc')
    assert.ok(bytesArg(limit ?? '') <= 0.75 * bytesArg(claim.spec.resources.requests.storage), limit ?? 'none')
  })

  it('run the image of this version', async () => {
    const { version }: { version: string } = JSON.parse(await readFile(join(folder, '../package.json'), 'utf8'))
    assert.equal((await installedPod()).containers[0].image, `openflux/kit:${version}`)
    assert.ok((await readFile(join(folder, 'Dockerfile'), 'utf8')).includes(`openflux/kit:${version} `))
  })

  it('make pods that the standard "restricted" admits', async () => {
    // The quota counts nothing until the controller manager has seen it.
    await eventuallyHolds(async () => assert.equal(await dryRunPod(() => {}), 'pod/probe created (server dry run)\n'))
  })

  const unsafe: [name: string, change: (pod: PodSpec) => void][] = [
    ['as root', (pod) => Object.assign(pod.securityContext, { runAsUser: 0, runAsNonRoot: false })],
    ['without a seccomp profile', (pod) => Object.assign(pod.securityContext, { seccompProfile: undefined })],
    ['with escalation', (pod) => Object.assign(pod.containers[0].securityContext, { allowPrivilegeEscalation: true })],
    ['with capabilities', (pod) => Object.assign(pod.containers[0].securityContext, { capabilities: {} })],
    ['with a folder of the node', (pod) => pod.volumes.push({ name: 'node', hostPath: { path: '/' } })],
  ]
  for (const [name, change] of unsafe) {
    it(`refuse pods ${name}`, async () => {
      assert.match(await dryRunPod(change), /forbidden: violates PodSecurity "restricted:latest"/)
    })
  }

  it('can be removed as the README says, and GitRepository objects stay', async () => {
    await kubectl.run(['apply', '-f', join(folder, 'samples')])
    const readme = await readFile(join(folder, 'README.md'), 'utf8')
    const commands = readme.match(/^ +kubectl delete (crd|clusterrole|namespace).*$/gm) ?? []
    assert.equal(commands.length, 3)
    for (const command of commands) await kubectl.run([...command.trim().split(' ').slice(1), '--wait=false'])
    // Where nothing mounts volumes, nothing says that the claim is no longer in use.
    const free = '{"metadata":{"finalizers":null}}'
    await kubectl.run(['patch', 'pvc', 'git-controller', '-n', namespace, '--type=merge', '-p', free])
    await eventuallyHolds(async () => {
      const left = await kubectl.run(['get', 'crd,clusterrole,clusterrolebinding,namespace', '-o', 'name'])
      assert.deepEqual(
        lines(left).filter((name) => name.includes('openflux')),
        [],
      )
    })
    assert.equal(
      await kubectl.run(['get', 'gitrepository', 'shop', '-o', 'name']),
      'gitrepository.source.toolkit.fluxcd.io/shop\n',
    )
  })
})
