import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { loadAll } from 'js-yaml'
import { artifactInformerOptions, cachedArtifact } from '../../../controllers/artifact/artifact.ts'
import { type Artifact, ArtifactKind } from '../../../controllers/artifact/types.ts'
import { type GitRepository, GitRepositoryKind, type GitRepositorySpec } from '../../../controllers/git/types.ts'
import type { Client } from '../../../controllers/runtime/client.ts'
import { getCondition } from '../../../controllers/runtime/conditions.ts'
import { requestedAtAnnotation } from '../../../controllers/runtime/controller.ts'
import { Informer } from '../../../controllers/runtime/informer.ts'
import { makeLogger } from '../../../controllers/runtime/log.ts'
import { type ControlPlane, startControlPlane } from '../../control-plane/index.ts'
import { type GitServer, startGitServer } from '../../git-server.ts'
import { clientFor, makeNamespace } from '../../shared-control-plane.ts'

/** Where an artifact is and what it is of. */
export interface Served {
  url: string
  revision: string
  digest: string
}

/** Limits against hanging; no figure depends on them. */
const timeoutMs = 600_000

const project = join(import.meta.dirname, '../../..')

/** What all arms share: an API server, Git servers, and a view of the objects. Nothing of it is in the measured processes. */
export class Stage implements AsyncDisposable {
  readonly controlPlane: ControlPlane
  readonly client: Client
  /** Speaks protocol version 2; `oldGit` serves the same folder in version 0 only. */
  readonly git: GitServer
  readonly oldGit: GitServer
  readonly #objects: Informer<GitRepository>
  readonly #artifacts: Informer<Artifact>
  readonly #stop = new AbortController()
  /** Where objects are made; a new one for each arm. */
  namespace = ''

  private constructor(controlPlane: ControlPlane, git: GitServer, oldGit: GitServer) {
    this.controlPlane = controlPlane
    this.client = clientFor(controlPlane.kubeconfig, 'bench')
    this.git = git
    this.oldGit = oldGit
    const log = makeLogger('error')
    this.#objects = new Informer(this.client, log, GitRepositoryKind)
    this.#artifacts = new Informer(this.client, log, ArtifactKind, artifactInformerOptions)
  }

  /** `root` holds the repositories; `peerCrds` is a folder with further CRDs that a peer wants. */
  static async open(root: string, peerCrds: string | undefined): Promise<Stage> {
    const crds = [join(project, 'crds'), ...(peerCrds ? await furtherCrds(peerCrds) : [])]
    const controlPlane = await startControlPlane({ crds })
    const [git, oldGit] = await Promise.all([startGitServer({ root }), startGitServer({ root, protocolV2: false })])
    const stage = new Stage(controlPlane, git, oldGit)
    for (const informer of [stage.#objects, stage.#artifacts]) void informer.run(stage.#stop.signal)
    await Promise.all([stage.#objects.whenSynced(), stage.#artifacts.whenSynced()])
    return stage
  }

  /** A new namespace for the objects of the next arm. */
  async enter(): Promise<void> {
    this.namespace = await makeNamespace(this.client)
  }

  /** Deletes the objects of the namespace; resolves when their controller has let them go. */
  async leave(): Promise<void> {
    const mine = () => [...this.#objects.cache.list()].filter((object) => object.metadata.namespace === this.namespace)
    await Promise.all(mine().map(({ metadata }) => this.client.delete(GitRepositoryKind, this.#key(metadata.name))))
    await this.until('all objects are gone', () => mine().length === 0)
  }

  /** Applies a GitRepository that is looked at when asked only; resolves when the API server has it. */
  async create(name: string, spec: Pick<GitRepositorySpec, 'url' | 'ref'>): Promise<void> {
    await this.client.create(GitRepositoryKind, {
      apiVersion: 'source.toolkit.fluxcd.io/v1',
      kind: 'GitRepository',
      metadata: this.#key(name),
      spec: { interval: '1h', timeout: '10m', ...spec },
    })
  }

  /** Asks for a pass by annotation; resolves with the token that the status shows after it. */
  async poke(name: string): Promise<string> {
    const token = crypto.randomUUID()
    const patch = { metadata: { annotations: { [requestedAtAnnotation]: token } } }
    await this.client.patch(GitRepositoryKind, this.#key(name), patch)
    return token
  }

  read(name: string): GitRepository | undefined {
    return this.#objects.cache.get(`${this.namespace}/${name}`)
  }

  isReady(name: string): boolean {
    const object = this.read(name)
    return Boolean(object?.status?.artifact) && getCondition(object!, 'Ready')?.status === 'True'
  }

  /** What consumers see: the Artifact, or for a controller without that kind what the source's status says. */
  served(name: string): Served | undefined {
    const source = { metadata: this.#key(name) }
    const spec = cachedArtifact(this.#artifacts, GitRepositoryKind, source)?.spec ?? this.read(name)?.status?.artifact
    return spec?.digest ? { url: spec.url, revision: spec.revision, digest: spec.digest } : undefined
  }

  /** Resolves as soon as the API server has told of a change after which `check` holds. Throws, naming it, after ten minutes. */
  async until(what: string, check: () => boolean): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const look = () => void (check() && resolve())
    const timer = setTimeout(
      () => reject(new Error(`not within ${timeoutMs} ms: ${what}; ${this.#states()}`)),
      timeoutMs,
    )
    const ends = [this.#objects.onChange(look), this.#artifacts.onChange(look)]
    look()
    try {
      await promise
    } finally {
      clearTimeout(timer)
      for (const end of ends) end()
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort()
    await Promise.all([this.git.stop(), this.oldGit.stop()])
    await this.controlPlane.stop()
  }

  #key(name: string) {
    return { namespace: this.namespace, name }
  }

  #states(): string {
    const objects = [...this.#objects.cache.list()].filter(({ metadata }) => metadata.namespace === this.namespace)
    return objects.map(({ metadata, status }) => `${metadata.name}: ${JSON.stringify(status?.conditions)}`).join('; ')
  }
}

/** The files with CRDs that are not ours: ours serve the peer too. */
async function furtherCrds(folder: string): Promise<string[]> {
  const ours = await namesOfCrds(join(project, 'crds'))
  const theirs = await namesOfCrds(folder)
  return [...theirs].filter(([name]) => !ours.has(name)).map(([, file]) => file)
}

async function namesOfCrds(folder: string): Promise<Map<string, string>> {
  const files = (await readdir(folder)).filter((name) => name.endsWith('.yaml')).map((name) => join(folder, name))
  const names = await Promise.all(
    files.map(async (file) => {
      const [crd] = loadAll(await readFile(file, 'utf8')) as { metadata?: { name?: string } }[]
      return [crd?.metadata?.name ?? file, file] as const
    }),
  )
  return new Map(names)
}
