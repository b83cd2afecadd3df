import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { loadAll } from 'js-yaml'
import type { ControlPlane } from '../e2e/control-plane/index.ts'
import { installCrds } from '../e2e/control-plane/readiness.ts'
import { clientFor, makeNamespace, sharedControlPlane } from '../e2e/shared-control-plane.ts'
import { type Artifact, ArtifactKind } from '../controllers/artifact/types.ts'
import type { Client } from '../controllers/runtime/client.ts'
import { getCondition } from '../controllers/runtime/conditions.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import { type CoreEvent, EventKind } from '../controllers/runtime/events.ts'
import { makeCommand, type RuntimeFlags } from '../controllers/runtime/flags.ts'
import { apiVersionOf, type Kind, type KubeObject, type OwnerReference } from '../controllers/runtime/kind.ts'
import { Manager } from '../controllers/runtime/manager.ts'
import { makeConsumerController } from './consumer.ts'
import { defaultConsumerFlags } from './flags.ts'
import { type Extraction, ExtractionKind, makeExtraction } from './sample/extraction.ts'
import { serve, sha256, tarOf, type TestServer } from './test-support.ts'
import type { Consumer } from './types.ts'

const ConfigMapKind: Kind = { group: '', version: 'v1', kind: 'ConfigMap', plural: 'configmaps' }
const rbac = { group: 'rbac.authorization.k8s.io', version: 'v1' }
export const RoleKind: Kind<KubeObject & { rules: unknown[] }> = { ...rbac, kind: 'Role', plural: 'roles' }
const RoleBindingKind: Kind = { ...rbac, kind: 'RoleBinding', plural: 'rolebindings' }

/** What an Artifact is made of; the revision, digest, url and size follow from the content where nothing else is said. */
export interface Publication extends Partial<NonNullable<Artifact['spec']>> {
  owners: OwnerReference[]
  content: string
}

/** The sample consumer in a namespace of its own, with exactly the rights of sample/role.yaml, and hand-made Artifacts for it. For tests. */
export class ConsumerRun implements AsyncDisposable {
  readonly admin: Client
  readonly namespace: string
  /** Of a user with the sample's role, and no other right. */
  readonly kubeconfig: string
  readonly root: string
  /** What the consumer was called with, by object and revision. */
  readonly calls: { name: string; revision: string; digest: string }[] = []
  readonly #server: TestServer
  readonly #files: Map<string, Buffer>
  #stop: AbortController | undefined
  #running: Promise<void> | undefined

  private constructor(
    admin: Client,
    namespace: string,
    kubeconfig: string,
    root: string,
    server: TestServer,
    files: Map<string, Buffer>,
  ) {
    this.admin = admin
    this.namespace = namespace
    this.kubeconfig = kubeconfig
    this.root = root
    this.#server = server
    this.#files = files
  }

  static async open(): Promise<ConsumerRun> {
    const cluster = await sharedControlPlane()
    await installSample(cluster)
    const admin = clientFor(cluster.kubeconfig)
    const namespace = await makeNamespace(admin)
    const user = `system:serviceaccount:${namespace}:extraction`
    await bindRoles(admin, namespace, user)
    const files = new Map<string, Buffer>()
    const server = await serve((req, res) => {
      const bytes = files.get(req.url ?? '')
      if (bytes) res.end(bytes)
      else res.writeHead(404).end()
    })
    const root = await mkdtemp(join(tmpdir(), 'openflux-consumer-'))
    return new ConsumerRun(admin, namespace, await cluster.userKubeconfig(user), root, server, files)
  }

  /** Starts the consumer; `change` may replace parts of it, `flags` are added to the command line. */
  start(
    change: (sample: Consumer<Extraction>) => Partial<Consumer<Extraction>> = () => ({}),
    flags: string[] = [],
  ): void {
    const command = makeCommand('test', 'a consumer under test')
    const own = [
      `--kubeconfig=${this.kubeconfig}`,
      '--watch-all-namespaces=false',
      `--runtime-namespace=${this.namespace}`,
      '--metrics-addr=127.0.0.1:0',
      '--health-addr=127.0.0.1:0',
      '--min-retry-delay=100ms',
      '--max-retry-delay=500ms',
      '--requeue-dependency=1h', // so that nothing but events can wake who waits
      '--log-level=error',
    ]
    command.parse([...own, ...flags], { from: 'user' })
    const sample = makeExtraction(this.root)
    const consumer: Consumer<Extraction> = { ...sample, ...change(sample) }
    const manager = new Manager(command.opts<RuntimeFlags>(), 'test')
    makeConsumerController(
      manager,
      {
        ...consumer,
        reconcile: (obj, artifact, ctx) => {
          this.calls.push({ name: obj.metadata.name, revision: artifact.revision, digest: artifact.digest })
          return consumer.reconcile(obj, artifact, ctx)
        },
      },
      { ...defaultConsumerFlags(), httpRetry: 1 },
    )
    this.#stop = new AbortController()
    this.#running = manager.run(this.#stop.signal)
  }

  async stop(): Promise<void> {
    this.#stop?.abort()
    await this.#running
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
    await this.#server.stop()
    await rm(this.root, { recursive: true, force: true })
  }

  /** Creates or replaces an Artifact whose archive has one file, `content.txt`. */
  async publish(name: string, { owners, content, ...spec }: Publication): Promise<Artifact> {
    const bytes = gzipSync(tarOf({ path: 'content.txt', content }))
    const digest = sha256(bytes)
    const path = `/${this.namespace}/${name}/${digest.slice(-12)}.tar.gz`
    this.#files.set(path, bytes)
    return this.admin.apply(ArtifactKind, {
      apiVersion: apiVersionOf(ArtifactKind),
      kind: ArtifactKind.kind,
      metadata: { name, namespace: this.namespace, ownerReferences: owners },
      spec: {
        url: `${this.#server.url}${path}`,
        revision: `main@sha256:${digest.slice(-12)}`,
        digest,
        size: bytes.length,
        lastUpdateTime: '2026-01-02T03:04:05Z',
        ...spec,
      },
    })
  }

  /** Lets an address that is served already give other bytes. */
  tamper(artifact: Artifact, bytes: Buffer): void {
    this.#files.set(new URL(artifact.spec?.url ?? '').pathname, bytes)
  }

  unpublish(name: string): Promise<void> {
    return this.admin.delete(ArtifactKind, { namespace: this.namespace, name })
  }

  /** A ConfigMap, and the reference by which it owns something. */
  async configMap(name: string): Promise<OwnerReference> {
    const { uid = '' } = (
      await this.admin.create(ConfigMapKind, {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name, namespace: this.namespace },
      })
    ).metadata
    return { apiVersion: 'v1', kind: 'ConfigMap', name, uid }
  }

  deleteConfigMap(name: string): Promise<void> {
    return this.admin.delete(ConfigMapKind, { namespace: this.namespace, name })
  }

  async create(name: string, spec: Extraction['spec']): Promise<Extraction> {
    const metadata = { name, namespace: this.namespace }
    return this.admin.create(ExtractionKind, {
      apiVersion: apiVersionOf(ExtractionKind),
      kind: 'Extraction',
      metadata,
      spec,
    })
  }

  async read(name: string): Promise<Extraction> {
    const object = await this.admin.get(ExtractionKind, { namespace: this.namespace, name })
    assert.ok(object, `extraction ${name} is gone`)
    return object
  }

  patch(name: string, patch: object): Promise<Extraction> {
    return this.admin.patch(ExtractionKind, { namespace: this.namespace, name }, patch)
  }

  /** Waits until Ready has this status and reason and is about the present spec. */
  until(name: string, status: 'True' | 'False', reason = 'ReconciliationSucceeded'): Promise<Extraction> {
    return eventually(async () => {
      const object = await this.read(name)
      const ready = getCondition(object, 'Ready')
      const about = [ready?.status, ready?.reason, ready?.observedGeneration]
      assert.deepEqual(about, [status, reason, object.metadata.generation], JSON.stringify(object.status))
      return object
    })
  }

  /** Waits until a revision is applied. */
  async untilApplied(name: string, { spec }: Artifact): Promise<Extraction> {
    await eventually(async () => (await this.read(name)).status?.lastAppliedRevision === spec?.revision)
    return this.until(name, 'True')
  }

  content(name: string): Promise<string> {
    return readFile(join(this.root, this.namespace, name, 'content.txt'), 'utf8')
  }

  async events(name: string, reason: string): Promise<CoreEvent[]> {
    const all = await this.admin.list<CoreEvent>(EventKind, { namespace: this.namespace })
    return all.filter((event) => event.reason === reason && event.involvedObject.name === name)
  }

  /** How often the consumer was called for an object. */
  callsOf(name: string): number {
    return this.calls.filter((call) => call.name === name).length
  }
}

let installed: Promise<void> | undefined

function installSample({ kubectl, kubeconfig }: ControlPlane): Promise<void> {
  return (installed ??= installCrds(kubectl, kubeconfig, [join(import.meta.dirname, 'sample/crd.yaml')]))
}

async function bindRoles(admin: Client, namespace: string, user: string): Promise<void> {
  const roles: any[] = loadAll(await readFile(join(import.meta.dirname, 'sample/role.yaml'), 'utf8'))
  for (const { metadata, ...rest } of roles) {
    await admin.create(RoleKind, { ...rest, metadata: { ...metadata, namespace } })
    const binding = {
      metadata: { name: metadata.name, namespace },
      roleRef: { apiGroup: rbac.group, kind: 'Role', name: metadata.name },
      subjects: [{ apiGroup: rbac.group, kind: 'User', name: user }],
    }
    await admin.create(RoleBindingKind, binding)
  }
}
