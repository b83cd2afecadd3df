import type { Client, Selection } from './client.ts'
import { ApiError, isStatus } from './client.ts'
import { Indexer, type IndexFunction } from './indexer.ts'
import { keyOf, type Kind, type KubeObject } from './kind.ts'
import type { Logger } from './log.ts'
import { watchRestarts } from './metrics.ts'
import { sleep } from './sleep.ts'
import { readWatch, type WatchEvent } from './watch.ts'

/** How the cache changed. `previous` is what it held before. */
export type Change<T> =
  { type: 'added'; object: T } | { type: 'updated'; object: T; previous: T } | { type: 'deleted'; object: T }

export interface InformerOptions<T extends KubeObject> {
  selection?: Selection
  /** Named indexes, looked up by `cache.by(name, value)`. */
  indexes?: Record<string, IndexFunction<T>>
  /** What to keep of an object. `managedFields` never reach the cache. */
  transform?: (object: T) => T
}

/**
 * How long one watch is asked to live, in s. The server ends it then, so that one which stays silent for longer has died
 * without notice (a lost FIN, a frozen proxy): bookmarks come only once a minute, too rare to tell.
 */
const watchSeconds = 8
const silenceMs = 10_000
/** A watch that ended sooner than this counts as a failed one, or a server that hangs up at once would be asked in a hot loop. */
const shortLivedMs = 1_000
const minBackoffMs = 200
const maxBackoffMs = 8_000

/** A cache of all objects of a kind that follows the API server: one list, then watches that resume where the last one ended. */
export class Informer<T extends KubeObject> {
  readonly kind: Kind<T>
  readonly cache: Indexer<T>
  readonly #client: Client
  readonly #log: Logger
  readonly #selection: Selection
  readonly #transform: (object: T) => T
  readonly #handlers: Set<(change: Change<T>) => void> = new Set()
  readonly #synced = Promise.withResolvers<void>()
  /** Keys that `put` has written since the last list began, which may be older than that. */
  readonly #puts: Set<string> = new Set()
  #isSynced = false

  constructor(client: Client, log: Logger, kind: Kind<T>, options: InformerOptions<T> = {}) {
    this.kind = kind
    this.#client = client
    this.#log = log.child({ informer: kind.kind })
    this.#selection = options.selection ?? {}
    this.#transform = options.transform ?? ((object) => object)
    this.cache = new Indexer<T>(options.indexes)
  }

  /** True once the first list is in the cache; it stays true while the server is away. */
  get synced(): boolean {
    return this.#isSynced
  }

  whenSynced(): Promise<void> {
    return this.#synced.promise
  }

  /** Calls `handler` on each change from now on, and first with `added` for what is there. Returns the function that ends it. */
  onChange(handler: (change: Change<T>) => void): () => void {
    for (const object of this.cache.list()) handler({ type: 'added', object })
    this.#handlers.add(handler)
    return () => this.#handlers.delete(handler)
  }

  /** Takes in the answer to one's own write, so that the next pass does not read what was there before it. */
  put(object: T): void {
    const cached = this.cache.get(keyOf(object))
    if (cached?.metadata.uid !== object.metadata.uid) return
    this.#puts.add(keyOf(object))
    this.#store(object)
  }

  /** Follows the server until `signal` aborts. Never throws. */
  async run(signal: AbortSignal): Promise<void> {
    let failures = 0
    let resourceVersion: string | undefined
    while (!signal.aborted) {
      const startedAt = performance.now()
      let cause = 'end'
      try {
        resourceVersion ??= await this.#relist(signal)
        for await (const event of this.#watch(resourceVersion, signal)) resourceVersion = this.#handle(event)
      } catch (err) {
        if (signal.aborted) return
        cause = causeOf(err)
        // Whatever the server refuses (410 Gone, a version it does not know yet, 403 for a while), a list tells the truth.
        if (cause === 'relist') resourceVersion = undefined
        this.#log.info({ cause, error: String(err) }, 'watch ended, will be opened again')
      }
      watchRestarts.inc({ kind: this.kind.kind, cause })
      const failed = cause !== 'end' || performance.now() - startedAt < shortLivedMs
      failures = failed && cause !== 'silent' ? failures + 1 : 0
      if (failures > 0) await sleep(backoffMs(failures), signal)
    }
  }

  async #relist(signal: AbortSignal): Promise<string> {
    const seen = new Set<string>()
    const objects: T[] = []
    let next: string | undefined
    let resourceVersion = ''
    this.#puts.clear()
    do {
      const page = await this.#client.page(this.kind, this.#selection, next, signal)
      for (const object of page.items) {
        seen.add(keyOf(object))
        objects.push(object)
      }
      resourceVersion = page.resourceVersion
      next = page.next
    } while (next)
    // Only a complete list may remove anything.
    for (const object of objects) this.#store(object, !this.#puts.has(keyOf(object)))
    for (const key of this.cache.keys()) if (!seen.has(key)) this.#remove(key)
    this.#isSynced = true
    this.#synced.resolve()
    return resourceVersion
  }

  async *#watch(resourceVersion: string, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    const abort = new AbortController()
    const end = () => abort.abort(signal.reason)
    signal.addEventListener('abort', end, { once: true })
    try {
      const body = await this.#client.watch(this.kind, this.#selection, resourceVersion, watchSeconds, abort.signal)
      yield* readWatch(body, silenceMs, abort)
    } finally {
      signal.removeEventListener('abort', end)
      abort.abort()
    }
  }

  #handle(event: WatchEvent): string {
    const object = event.object as T
    if (event.type === 'DELETED') this.#remove(keyOf(object), object.metadata.uid)
    else if (event.type !== 'BOOKMARK') this.#store(object)
    return object.metadata.resourceVersion!
  }

  /** `isTruth`: a list is right even where its versions are lower, as they are after etcd was restored from a backup. */
  #store(incoming: T, isTruth = false): void {
    const key = keyOf(incoming)
    const previous = this.cache.get(key)
    const sameObject = previous?.metadata.uid === incoming.metadata.uid
    const sameVersion = previous?.metadata.resourceVersion === incoming.metadata.resourceVersion
    if (previous && sameObject && (isTruth ? sameVersion : !isNewer(incoming, previous))) return
    if (previous && !sameObject) this.#remove(key)
    delete (incoming.metadata as { managedFields?: unknown }).managedFields
    const object = this.#transform(incoming)
    this.cache.set(object)
    this.#emit(previous && sameObject ? { type: 'updated', object, previous } : { type: 'added', object })
  }

  #remove(key: string, uid?: string): void {
    const object = this.cache.get(key)
    if (!object || (uid && object.metadata.uid !== uid)) return
    this.cache.delete(key)
    this.#emit({ type: 'deleted', object })
  }

  #emit(change: Change<T>): void {
    for (const handler of this.#handlers) {
      try {
        handler(change)
      } catch (err) {
        // One handler's fault must not cost the others their event, nor the cache its watch.
        this.#log.error({ error: err }, 'handler of an informer failed')
      }
    }
  }
}

/** Resource versions are comparable as numbers (KEP-5504); equal means the same write, e.g. our own that `put` took in. */
function isNewer(incoming: KubeObject, cached: KubeObject): boolean {
  return BigInt(incoming.metadata.resourceVersion ?? 0) > BigInt(cached.metadata.resourceVersion ?? 0)
}

function causeOf(err: unknown): 'silent' | 'relist' | 'error' {
  if (err instanceof Error && err.name === 'SilentWatchError') return 'silent'
  const passing = [0, 401, 429, 503].some((status) => isStatus(err, status))
  return err instanceof ApiError && !passing ? 'relist' : 'error'
}

function backoffMs(failures: number): number {
  return Math.min(minBackoffMs * 2 ** Math.min(failures - 1, 20), maxBackoffMs) * (0.75 + Math.random() / 2)
}
