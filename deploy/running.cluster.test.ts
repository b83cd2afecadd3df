import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Artifact, ArtifactKind } from '../controllers/artifact/types.ts'
import { type GitRepository, GitRepositoryKind } from '../controllers/git/types.ts'
import { Client } from '../controllers/runtime/client.ts'
import { loadCredentials } from '../controllers/runtime/kube-config.ts'
import { startController } from '../e2e/controller-process.ts'
import { type ControlPlane, startControlPlane } from '../e2e/control-plane/index.ts'
import { type GitServer, startGitServer } from '../e2e/git-server.ts'
import { eventuallyHolds } from '../controllers/runtime/eventually.ts'
import { type Kubectl, makeKubectl } from './kubectl.ts'

const namespace = 'openflux-system'
const serviceAccount = `system:serviceaccount:${namespace}:git-controller`
const login = { user: 'reader', password: 'word' }
const key = { namespace: 'default', name: 'shop' }

let cluster: ControlPlane
let kubectl: Kubectl
let git: GitServer
let storage: string

/** The program and the flags that the Deployment gives to the container, as they are below this project. */
async function commandLine(): Promise<{ main: string; flags: string[] }> {
  const path = 'jsonpath={.spec.template.spec.containers[0].args}'
  const args: string[] = JSON.parse(
    await kubectl.run(['get', 'deployment', 'git-controller', '-n', namespace, '-o', path]),
  )
  const [node, program = '', ...flags] = args.map((arg) => arg.replace('$(RUNTIME_NAMESPACE)', namespace))
  assert.equal(node, 'node')
  // The one thing that cannot be as it is in a container.
  const others = flags.filter((flag) => !flag.startsWith('--storage-path='))
  assert.equal(others.length, flags.length - 1)
  return { main: program.replace(/^dist\//, '').replace(/\.js$/, '.ts'), flags: others }
}

async function createPrivateRepository(): Promise<string> {
  const commit = await (await git.repository('shop.git')).commit({ 'a.yaml': 'a: 1\n' }, 'first')
  const literals = [`--from-literal=username=${login.user}`, `--from-literal=password=${login.password}`]
  await kubectl.run(['create', 'secret', 'generic', 'login', ...literals])
  const spec = { url: `${git.url}/shop.git`, interval: '1h', ref: { branch: 'main' }, secretRef: { name: 'login' } }
  const { group, version, kind } = GitRepositoryKind
  await kubectl.run(
    ['apply', '-f', '-'],
    JSON.stringify({ apiVersion: `${group}/${version}`, kind, metadata: key, spec }),
  )
  return commit
}

describe('the git controller as deployed', function () {
  this.timeout(120_000)

  before(async function () {
    this.timeout(30 * 60_000)
    cluster = await startControlPlane()
    kubectl = await makeKubectl(cluster)
    git = await startGitServer({ auth: login })
    storage = await mkdtemp(join(tmpdir(), 'deployed-'))
    await kubectl.run(['apply', '-k', import.meta.dirname])
    await kubectl.run(['wait', '--for=condition=Established', 'crd', '--all', '--timeout=30s'])
  })

  after(async () => {
    await git?.stop()
    await kubectl?.[Symbol.asyncDispose]()
    await cluster?.stop()
    if (storage) await rm(storage, { recursive: true })
  })

  it('takes its flags, and needs no right that its service account does not have', async () => {
    const groups = ['system:serviceaccounts', `system:serviceaccounts:${namespace}`]
    const kubeconfig = await cluster.userKubeconfig(serviceAccount, groups)
    const client = new Client(loadCredentials(cluster.kubeconfig), 'deployed-test')
    const commit = await createPrivateRepository()
    await using controller = await startController({ kubeconfig, storage, ...(await commandLine()) })

    await kubectl.run(['wait', 'gitrepository/shop', '--for=condition=Ready', '--timeout=60s'])
    const repository = await client.get<GitRepository>(GitRepositoryKind, key)
    const artifact = await client.get<Artifact>(ArtifactKind, { ...key, name: 'gitrepository-default-shop' })
    const url = `http://git-controller.${namespace}.svc.cluster.local./gitrepository/default/shop/${commit}.tar.gz`
    assert.equal(artifact?.spec?.url, url)
    assert.equal(repository?.status?.artifact?.url, url)
    assert.equal(artifact.metadata.ownerReferences?.[0]?.blockOwnerDeletion, true)
    await eventuallyHolds(async () => {
      assert.match(await kubectl.run(['get', 'events']), /NewArtifact +gitrepository\/shop/)
    })
    assert.match(await kubectl.run(['get', 'leases', '-n', namespace, '-o', 'name']), /openflux-gitrepository/)

    await kubectl.run(['delete', 'gitrepository', 'shop', '--timeout=30s'])
    await eventuallyHolds(async () => assert.equal(await kubectl.run(['get', 'artifacts', '-o', 'name']), ''))
    await controller.stop()
    assert.doesNotMatch(controller.process.logs(), /forbidden/i)
  })
})
