import type { Storage } from '../artifact/storage/storage.ts'
import { kindFolder } from '../artifact/artifact.ts'
import type { Controller } from '../runtime/controller.ts'
import type { Indexer } from '../runtime/indexer.ts'
import { keyOf, type Kind } from '../runtime/kind.ts'
import type { LeaderElector } from '../runtime/lease.ts'
import type { Manager } from '../runtime/manager.ts'
import { sleep } from '../runtime/sleep.ts'
import type { SourceObject } from './source.ts'

/** On a lease: the id of its holder's storage, by which a standby knows whether it serves the same folder. */
export const storageIdAnnotation = 'openfluxcd.ocm.software/storage-id'

const maxSweepMs = 30_000
const minSweepMs = 1_000
/** Files hashed at once at the start of a term; hashing runs in other threads, opening them costs descriptors. */
const verifyConcurrency = 16

export interface UpkeepOptions {
  kind: Kind
  objects: { readonly synced: boolean; readonly cache: Pick<Indexer<SourceObject>, 'get' | 'list'> }
  storage: Storage
  /** How long files of a deleted object stay, in ms. */
  retentionTtlMs: number
  /** Whether a live Artifact still names a file of this folder. */
  isServed(folder: string): boolean
  manager: Manager
}

/** What upkeep needs of its controller. */
type Queue = Pick<Controller, 'enqueueUnlessFailing' | 'onPass'>

/** Looks after the stored files of one kind: all of them before it is Ready, orphans while it leads. */
export class SourceUpkeep {
  readonly kind: Kind
  readonly #options: UpkeepOptions
  #controller: Queue | undefined
  #elector: LeaderElector | undefined
  /** Keys whose file was missing or damaged at the start of the term and that had no pass since. */
  #pending: Set<string> | undefined

  constructor(options: UpkeepOptions) {
    this.#options = options
    this.kind = options.kind
  }

  attach(controller: Queue, elector: LeaderElector | undefined): void {
    this.#controller = controller
    this.#elector = elector
    controller.onPass = (key) => this.#pending?.delete(key)
  }

  get leading(): boolean {
    return this.#elector ? this.#elector.leading : true
  }

  /** Asks for a pass over one object. Whoever downloads in a loop must not make us ask upstream in a loop. */
  request(key: string): void {
    this.#controller?.enqueueUnlessFailing(key)
  }

  /** What is missing before requests may be answered with 404; undefined when nothing is. */
  unready(): string | undefined {
    const name = this.kind.kind
    if (!this.#options.objects.synced) return `${name}: first list is missing`
    if (!this.leading) return this.#sharesStorage() ? undefined : `${name}: standby without the leader's storage`
    if (!this.#pending) return `${name}: stored files are being verified`
    return this.#pending.size ? `${name}: ${this.#pending.size} stored files are being rebuilt` : undefined
  }

  /** Checks every stored file; gives the keys of the objects whose file must be built anew. */
  async verifyAll(term: AbortSignal): Promise<string[]> {
    this.#pending = undefined
    const broken: string[] = []
    const objects = [...this.#options.objects.cache.list()].filter(
      (object) => object.status?.artifact && !object.spec?.suspend,
    )
    const next = objects.values()
    const verify = async (): Promise<void> => {
      for (const object of next) {
        if (term.aborted) return
        // A status may hold anything: what cannot even be checked is that object's own affair.
        const state = await this.#options.storage.check(object.status!.artifact!).catch(() => 'damaged')
        if (state !== 'intact') broken.push(keyOf(object))
      }
    }
    await Promise.all(Array.from({ length: verifyConcurrency }, verify))
    this.#pending = new Set(broken)
    return broken
  }

  /** Removes the files of objects that are no more, until the term ends. */
  async sweep(term: AbortSignal): Promise<void> {
    const { storage, manager, retentionTtlMs } = this.#options
    while (!term.aborted) {
      await storage
        .sweep(kindFolder(this.kind), (folder) => this.#isLive(folder))
        .catch((err: unknown) => manager.log.error({ error: err }, 'sweep of the storage failed'))
      await sleep(Math.min(maxSweepMs, Math.max(retentionTtlMs, minSweepMs)), term)
    }
    this.#pending = undefined
  }

  #isLive(folder: string): boolean {
    const { objects, manager } = this.#options
    const [, namespace = '', name = ''] = folder.split('/')
    const { namespace: watched } = manager.namespaces
    return Boolean(
      (watched && watched !== namespace) || objects.cache.get(`${namespace}/${name}`) || this.#options.isServed(folder),
    )
  }

  #sharesStorage(): boolean {
    return this.#elector?.lease?.metadata.annotations?.[storageIdAnnotation] === this.#options.storage.id
  }
}
