import { join } from 'node:path'
import { artifactInformerOptions, artifactName, kindFolder } from '../artifact/artifact.ts'
import type { ArchiveLimits } from '../artifact/archive/archive-plan.ts'
import { makeFileServer } from '../artifact/server/server.ts'
import { type HistoryQuery, openStorage, type Storage } from '../artifact/storage/storage.ts'
import { ownFolder } from '../artifact/storage/paths.ts'
import { Temps } from '../artifact/storage/temps.ts'
import { type Artifact, ArtifactKind } from '../artifact/types.ts'
import type { Informer } from '../runtime/informer.ts'
import { groupOf, type Kind } from '../runtime/kind.ts'
import type { Manager } from '../runtime/manager.ts'
import { SecretWatches } from '../runtime/secret-watches.ts'
import { aborted, sleep } from '../runtime/sleep.ts'
import { refuseBesideFlux } from './beside-flux.ts'
import { Dependencies } from './dependencies.ts'
import { advertisedUrl, type StorageFlags } from './flags.ts'
import { SourceReconciler } from './reconciler.ts'
import type { OpenedEntries, Source, SourceObject } from './source.ts'
import { SourceUpkeep, storageIdAnnotation } from './upkeep.ts'

/** How often every current file is looked at, so that damage is noticed without a request. */
const patrolMs = 5_000

/** What all source kinds of one process share: storage, file server and the watch on Artifacts. */
export class SourceHost {
  readonly storage: Storage
  readonly artifacts: Informer<Artifact>
  readonly #manager: Manager
  readonly #upkeeps: Map<string, SourceUpkeep> = new Map()
  readonly #secrets: SecretWatches
  readonly #retentionTtlMs: number
  readonly #limits: ArchiveLimits
  readonly #temps: Temps
  #baseUrl = ''

  private constructor(manager: Manager, storage: Storage, flags: StorageFlags) {
    this.#manager = manager
    this.#retentionTtlMs = flags.artifactRetentionTtl
    this.#limits = limitsOf(flags)
    this.#temps = new Temps(join(flags.storagePath, ownFolder, 'tmp'))
    this.#secrets = new SecretWatches({ client: manager.client, log: manager.log })
    this.storage = storage
    this.artifacts = manager.informer(ArtifactKind, { ...artifactInformerOptions, selection: manager.namespaces })
  }

  /** Opens the storage and starts to serve it. Throws when the folder or the address cannot be used. */
  static async open(manager: Manager, flags: StorageFlags): Promise<SourceHost> {
    const storage = await openStorage({
      root: flags.storagePath,
      retentionTtlMs: flags.artifactRetentionTtl,
      retentionRecords: flags.artifactRetentionRecords,
      digestAlgorithm: flags.artifactDigestAlgo,
      gzip: flags.artifactGzip,
      limits: limitsOf(flags),
      log: manager.log,
    })
    const host = new SourceHost(manager, storage, flags)
    const server = makeFileServer({
      storage,
      memoryBytes: flags.artifactMemoryCache,
      state: {
        ready: () => host.#unready() === undefined,
        expects: (path) => host.#expects(path),
        current: (folder, query) => host.#current(folder, query),
      },
      onDamage: (path) => host.#onDamage(path),
      log: manager.log,
    })
    const listening = await server.listen(flags.storageAddr)
    host.#baseUrl = advertisedUrl(flags, listening.port)
    manager.log.info({ storagePort: listening.port, url: host.#baseUrl }, 'serving artifacts')
    manager.background(async (signal) => {
      await host.#patrol(signal)
      await listening.close()
    })
    manager.background(async (signal) => {
      await aborted(signal)
      await host.#secrets.close()
    })
    manager.readyWhen('artifacts', () => host.#unready())
    return host
  }

  /** Adds the controller of a source kind to the process. */
  add<T extends SourceObject, U>(source: Source<T, U>): void {
    const manager = this.#manager
    const selection = { ...manager.namespaces, labelSelector: manager.flags.watchLabelSelector || undefined }
    const objects = manager.informer<T>(source.kind, { selection })
    const dependencies = new Dependencies({
      secrets: this.#secrets,
      artifacts: this.artifacts,
      open: (artifact, abort) => this.#openFiles(artifact, abort),
      enqueue: (key) => controller.enqueue(key),
    })
    const reconciler = new SourceReconciler(source, {
      storage: this.storage,
      objects,
      artifacts: this.artifacts,
      dependencies,
      urlOf: (path) => `${this.#baseUrl}/${path}`,
      intervalJitterPercentage: manager.flags.intervalJitterPercentage,
    })
    const upkeep = new SourceUpkeep({
      kind: source.kind,
      objects,
      storage: this.storage,
      retentionTtlMs: this.#retentionTtlMs,
      isServed: (folder) => this.#isServed(source.kind, folder),
      manager,
    })
    const { controller, elector } = manager.add<T>({
      kind: source.kind,
      component: `openflux-${source.kind.kind.toLowerCase()}`,
      reconcile: (key, ctx) => reconciler.reconcile(key, ctx),
      informer: objects,
      leaseAnnotations: { [storageIdAnnotation]: this.storage.id },
      beforeStart: (signal) => refuseBesideFlux(manager, signal),
      beforeTerm: (term) => upkeep.verifyAll(term),
      duringTerm: async (_, term) => {
        await upkeep.sweep(term)
        dependencies.clear()
      },
    })
    upkeep.attach(controller, elector)
    this.#upkeeps.set(kindFolder(source.kind), upkeep)
    this.artifacts.onChange((change) => {
      if (change.type === 'added') return
      // Somebody may have taken the owner away: the object before tells whose it was.
      const { metadata } = change.type === 'updated' ? change.previous : change.object
      const owner = metadata.ownerReferences?.find(
        (reference) => reference.kind === source.kind.kind && groupOf(reference.apiVersion) === source.kind.group,
      )
      const key = `${metadata.namespace}/${owner?.name}`
      if (owner && reconciler.isDisturbed(key)) controller.enqueueUnlessFailing(key)
    })
  }

  /** Loaded only when one object uses the content of another. */
  async #openFiles(artifact: Artifact, signal: AbortSignal): Promise<OpenedEntries> {
    const { openArtifactFiles } = await import('./artifact-files.ts')
    const base = `${this.#baseUrl}/`
    const pathOf = (url: string) => (url.startsWith(base) ? url.slice(base.length) : undefined)
    const options = { storage: this.storage, pathOf, limits: this.#limits, temps: this.#temps }
    return openArtifactFiles(artifact, options, signal)
  }

  #unready(): string | undefined {
    for (const upkeep of this.#upkeeps.values()) {
      const why = upkeep.unready()
      if (why) return why
    }
    return undefined
  }

  /** Whether the Artifact of the object that a stored path belongs to names just that path. */
  #expects(path: string): boolean {
    const upkeep = this.#upkeeps.get(path.split('/')[0]!)
    return Boolean(upkeep && this.#artifactAt(upkeep.kind, path)?.spec?.url === `${this.#baseUrl}/${path}`)
  }

  /** The path of the current file of a folder if it is what `query` asks for, by what the live Artifact says. */
  #current(folder: string, query: HistoryQuery): string | undefined {
    const upkeep = this.#upkeeps.get(folder.split('/')[0]!)
    const spec = upkeep && this.#artifactAt(upkeep.kind, folder)?.spec
    if (!spec?.url.startsWith(`${this.#baseUrl}/${folder}/`)) return undefined
    const path = spec.url.slice(this.#baseUrl.length + 1)
    if (query === 'latest') return path
    const meant =
      ('revision' in query && query.revision === spec.revision) ||
      ('digest' in query && query.digest === spec.digest) ||
      ('time' in query && query.time.getTime() >= Date.parse(spec.lastUpdateTime))
    return meant ? path : undefined
  }

  #isServed(kind: Kind, folder: string): boolean {
    return Boolean(this.#artifactAt(kind, folder)?.spec?.url?.startsWith(`${this.#baseUrl}/${folder}/`))
  }

  #artifactAt(kind: Kind, path: string): Artifact | undefined {
    const [, namespace = '', name = ''] = path.split('/')
    return this.artifacts.cache.get(`${namespace}/${artifactName(kind, { metadata: { namespace, name } })}`)
  }

  /** The current file is built anew by its controller; an old one is of no use to anybody. */
  #onDamage(path: string): void {
    const [folder = '', namespace, name] = path.split('/')
    const upkeep = this.#upkeeps.get(folder)
    if (upkeep && this.#expects(path)) upkeep.request(`${namespace}/${name}`)
    else if (upkeep?.leading)
      this.storage
        .discard(path)
        .catch((err: unknown) => this.#manager.log.error({ path, error: err }, 'damaged file not removed'))
  }

  async #patrol(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(patrolMs, signal)
      try {
        for (const path of await this.storage.patrol()) this.#onDamage(path)
      } catch (err) {
        this.#manager.log.error({ error: err }, 'patrol of the storage failed')
      }
    }
  }
}

function limitsOf(flags: StorageFlags): ArchiveLimits {
  return {
    maxEntries: flags.artifactMaxEntries,
    maxBytes: flags.artifactMaxSize,
    maxFileBytes: flags.artifactMaxFileSize,
  }
}
