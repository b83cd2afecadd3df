import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { request } from 'undici'
import { artifactName, type ServedArtifact } from '../controllers/artifact/artifact.ts'
import { type Artifact, ArtifactKind } from '../controllers/artifact/types.ts'
import { type GitRepository, GitRepositoryKind, type GitRepositorySpec } from '../controllers/git/types.ts'
import type { Client } from '../controllers/runtime/client.ts'
import { getCondition } from '../controllers/runtime/conditions.ts'
import { requestedAtAnnotation } from '../controllers/runtime/controller.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import { type CoreEvent, EventKind } from '../controllers/runtime/events.ts'
import { type ControllerProcess, type ControllerProcessOptions, startController } from './controller-process.ts'
import { type GitServer, type Repository, startGitServer } from './git-server.ts'
import { clientFor, makeNamespace, sharedControlPlane } from './shared-control-plane.ts'

/** A GitRepository whose artifact is stored. */
export type StoredRepository = GitRepository & { status: { artifact: ServedArtifact } }

/** The stage of one story: a namespace on a real API server, a real Git server, a storage folder, controllers as processes. */
export class Story {
  readonly kubeconfig: string
  readonly client: Client
  readonly namespace: string
  /** Removed at the end. */
  readonly folder: string
  readonly git: GitServer
  readonly #controllers: ControllerProcess[] = []

  private constructor(kubeconfig: string, client: Client, namespace: string, folder: string, git: GitServer) {
    this.kubeconfig = kubeconfig
    this.client = client
    this.namespace = namespace
    this.folder = folder
    this.git = git
  }

  static async open(): Promise<Story> {
    const { kubeconfig } = await sharedControlPlane()
    const client = clientFor(kubeconfig, 'story')
    const folder = await mkdtemp(join(tmpdir(), 'openflux-story-'))
    await mkdir(join(folder, 'storage'))
    return new Story(kubeconfig, client, await makeNamespace(client), folder, await startGitServer())
  }

  get storage(): string {
    return join(this.folder, 'storage')
  }

  /** Starts the git controller on this namespace and storage. */
  async startController(options: Partial<ControllerProcessOptions> = {}): Promise<ControllerProcess> {
    const controller = await startController({
      kubeconfig: this.kubeconfig,
      storage: this.storage,
      main: 'controllers/git/main.ts',
      ...options,
      flags: ['--watch-all-namespaces=false', `--runtime-namespace=${this.namespace}`, ...(options.flags ?? [])],
    })
    this.#controllers.push(controller)
    return controller
  }

  /** Waits until `/readyz` says yes. */
  async untilReady(controller: ControllerProcess): Promise<void> {
    await eventually(async () => {
      const { ready, text } = await controller.readiness()
      assert.ok(ready, text)
      return true
    })
  }

  repository(name: string): Promise<Repository> {
    return this.git.repository(name)
  }

  /** Applies a GitRepository on a repository of this story's server; the interval is long, so that nothing happens by itself. */
  async apply(name: string, spec: Partial<GitRepositorySpec> = {}): Promise<void> {
    await this.client.create(GitRepositoryKind, {
      apiVersion: 'source.toolkit.fluxcd.io/v1',
      kind: 'GitRepository',
      metadata: { name, namespace: this.namespace },
      spec: { interval: '1h', url: `${this.git.url}/app.git`, ref: { branch: 'main' }, ...spec },
    })
  }

  async read(name: string): Promise<GitRepository> {
    const object = await this.client.get(GitRepositoryKind, { namespace: this.namespace, name })
    assert.ok(object, `GitRepository ${name} is gone`)
    return object
  }

  /** Resolves with the object once it is Ready for its present generation and, if given, at `revision`. */
  ready(name: string, revision?: string): Promise<StoredRepository> {
    return eventually(async () => {
      const object = await this.read(name)
      assert.equal(getCondition(object, 'Ready')?.status, 'True', JSON.stringify(object.status?.conditions))
      assert.equal(object.status?.observedGeneration, object.metadata.generation)
      if (revision) assert.equal(object.status?.artifact?.revision, revision)
      return object as StoredRepository
    })
  }

  /** Resolves with the object once its Ready is False and its message matches. */
  failed(name: string, message: RegExp = /./): Promise<GitRepository> {
    return eventually(async () => {
      const object = await this.read(name)
      const ready = getCondition(object, 'Ready')
      assert.equal(ready?.status, 'False', JSON.stringify(object.status?.conditions))
      assert.match(ready.message, message)
      return object
    })
  }

  /** Asks for a pass by annotation, as `flux reconcile` does. */
  async request(name: string): Promise<string> {
    const token = `poke-${Math.random()}`
    await this.client.patch(
      GitRepositoryKind,
      { namespace: this.namespace, name },
      { metadata: { annotations: { [requestedAtAnnotation]: token } } },
    )
    return token
  }

  /** Asks for a pass and resolves with the object after it. */
  async poke(name: string): Promise<GitRepository> {
    const token = await this.request(name)
    return eventually(async () => {
      const object = await this.read(name)
      return object.status?.lastHandledReconcileAt === token && object
    })
  }

  artifact(name: string): Promise<Artifact | undefined> {
    const key = { metadata: { namespace: this.namespace, name } }
    return this.client.get(ArtifactKind, { namespace: this.namespace, name: artifactName(GitRepositoryKind, key) })
  }

  /** The events of one reason on one object. */
  async events(name: string, reason: string): Promise<CoreEvent[]> {
    const all = await this.client.list(EventKind, { namespace: this.namespace })
    return all.filter((event) => event.reason === reason && event.involvedObject.name === name)
  }

  async stopControllers(): Promise<void> {
    for (const controller of this.#controllers.splice(0)) await controller.stop()
  }

  async close(): Promise<void> {
    await this.stopControllers()
    await this.git.stop()
    await rm(this.folder, { recursive: true, force: true })
  }
}

/** One GET: its status, headers and body. */
export async function get(
  url: string,
): Promise<{ status: number; headers: Record<string, string | string[] | undefined>; bytes: Buffer }> {
  const { statusCode, headers, body } = await request(url)
  return { status: statusCode, headers, bytes: Buffer.from(await body.arrayBuffer()) }
}

export function sha256(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`
}

/** Asserts that a URL serves bytes of just this digest. */
export async function assertServes({ url, digest }: { url: string; digest: string }): Promise<Buffer> {
  const { status, bytes } = await get(url)
  assert.equal(status, 200, bytes.toString().slice(0, 200))
  assert.equal(sha256(bytes), digest)
  return bytes
}
