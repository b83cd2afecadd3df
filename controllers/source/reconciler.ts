import { artifactFolder } from '../artifact/artifact.ts'
import type { Storage, StoreResult } from '../artifact/storage/storage.ts'
import type { Artifact } from '../artifact/types.ts'
import type { Context } from '../runtime/context.ts'
import type { Result } from '../runtime/controller.ts'
import { durationOf } from '../runtime/duration.ts'
import type { Informer } from '../runtime/informer.ts'
import { apiVersionOf, type ObjectKey } from '../runtime/kind.ts'
import { equal } from '../runtime/merge-patch.ts'
import { setFinalizer, type Writer } from '../runtime/status.ts'
import { withTimeout } from '../runtime/timeout.ts'
import { hasFailed, markNewGeneration, markOutdated, markStored } from './conditions.ts'
import type { Dependencies, Uses } from './dependencies.ts'
import { observe, OutcomeWriter, tellFailure, tellStored, tellUnchanged, tellVerified } from './outcome.ts'
import { Publications } from './publications.ts'
import type { Fetched, Resolved, Source, SourceContext, SourceObject } from './source.ts'
import { checkStored, collectGarbage, fileNameOf } from './stored.ts'

/** Kept from Flux, so that either controller lets go of what the other one has held. */
export const finalizer = 'finalizers.fluxcd.io'

const defaultTimeout = '60s'
/** However short the interval: one object must not keep upstream and the API server busy. */
const minIntervalMs = 1_000

export interface ReconcilerOptions<T extends SourceObject> {
  storage: Storage
  objects: Informer<T>
  artifacts: Informer<Artifact>
  dependencies: Dependencies
  /** The URL under which others reach a stored path. */
  urlOf: (path: string) => string
  intervalJitterPercentage: number
}

/** One pass over one source, the same for every kind: what is stored, what upstream has, and if they differ: fetch, verify, store, tell. */
export class SourceReconciler<T extends SourceObject, U> {
  readonly source: Source<T, U>
  readonly #options: ReconcilerOptions<T>
  readonly #publications: Publications

  constructor(source: Source<T, U>, options: ReconcilerOptions<T>) {
    this.source = source
    this.#options = options
    this.#publications = new Publications({ kind: source.kind, artifacts: options.artifacts, urlOf: options.urlOf })
  }

  /** Whether somebody else has changed or deleted the Artifact of this object. */
  isDisturbed(key: string): boolean {
    const obj = this.#options.objects.cache.get(key)
    return obj !== undefined && this.#publications.isDisturbed(obj)
  }

  async reconcile(key: ObjectKey, ctx: Context): Promise<Result> {
    const uses = this.#options.dependencies.begin(key)
    try {
      return await this.#reconcile(key, ctx, uses)
    } finally {
      uses.end(ctx.signal)
    }
  }

  async #reconcile(key: ObjectKey, ctx: Context, uses: Uses): Promise<Result> {
    const cached = this.#options.objects.cache.get(`${key.namespace}/${key.name}`)
    if (!cached) {
      this.#publications.forget(`${key.namespace}/${key.name}`)
      return {}
    }
    const writer: Writer<T> = { client: ctx.client, kind: this.source.kind, informer: this.#options.objects }
    // Items of a list carry neither; events and owner references need both.
    const read: T = {
      ...structuredClone(cached),
      apiVersion: apiVersionOf(this.source.kind),
      kind: this.source.kind.kind,
    }
    read.spec ??= { interval: '' } // Flux's CRD does not ask for a spec; without one the object stalls on the interval
    if (read.metadata.deletionTimestamp) return this.#finalize(read, writer, ctx)
    if (read.spec.suspend) {
      ctx.log.info('reconciliation is suspended for this object')
      return {}
    }
    const before = await this.#withFinalizer(read, writer, ctx)
    return this.#pass(before, writer, ctx, uses)
  }

  async #withFinalizer(obj: T, writer: Writer<T>, ctx: Context): Promise<T> {
    if (obj.metadata.finalizers?.includes(finalizer)) return obj
    const written = await setFinalizer(writer, obj, finalizer, true, ctx.signal)
    return { ...obj, metadata: written.metadata }
  }

  /** Runs the pass within the object's timeout and writes its outcome, once, for good or ill. */
  async #pass(before: T, writer: Writer<T>, ctx: Context, uses: Uses): Promise<Result> {
    const obj = structuredClone(before)
    const outcome = new OutcomeWriter(writer, before, obj, ctx)
    try {
      if (obj.status?.observedGeneration !== obj.metadata.generation) markNewGeneration(obj)
      const timeoutMs = durationOf('spec.timeout', obj.spec.timeout ?? defaultTimeout)
      const intervalMs = durationOf('spec.interval', obj.spec.interval)
      await withTimeout('spec.timeout', timeoutMs, ctx, (bounded) =>
        this.#reconcileArtifact(before, obj, uses.of(bounded)),
      )
      observe(obj)
      return { requeueAfterMs: this.#jitter(intervalMs) }
    } catch (err) {
      if (!ctx.signal.aborted) tellFailure(obj, err, ctx, this.source.failureConditions)
      throw err
    } finally {
      await outcome.write(obj)
    }
  }

  /** stored? -> resolve -> unchanged? -> fetch -> verify -> store -> Artifact -> status -> garbage collection */
  async #reconcileArtifact(before: T, obj: T, ctx: SourceContext): Promise<void> {
    const { source } = this
    const { storage } = this.#options
    const recovered = hasFailed(before, source.failureConditions)
    const stored = await checkStored(storage, source.kind, obj, ctx)
    // Whatever upstream says next: what is stored can be found, also after a change of the address it is served at.
    if (stored) await this.#publications.publish(obj, stored, ctx)
    const resolved = await source.resolve(obj, ctx)
    if (stored?.revision === resolved.revision && this.#observedAsBefore(obj, resolved)) {
      tellVerified(obj, await source.verify?.(obj, resolved, ctx), ctx)
      markStored(obj, resolved.revision, source.failureConditions)
      const note = source.unchanged?.(resolved.revision) ?? upToDate(resolved.revision)
      tellUnchanged(obj, { ...note, recovered }, ctx)
    } else {
      this.#markOutdated(obj, resolved)
      const { artifact, droppedSymlinks, summary } = await this.#store(obj, resolved, ctx)
      await this.#publications.publish(obj, artifact, ctx)
      obj.status = { ...obj.status, ...this.#observed(obj, resolved) }
      markStored(obj, resolved.revision, source.failureConditions)
      tellStored(before, obj, { summary, droppedSymlinks, recovered }, ctx)
    }
    await collectGarbage(storage, source.kind, obj, ctx)
  }

  #markOutdated(obj: T, resolved: Resolved<U>): void {
    const { revision } = resolved
    if (obj.status?.artifact?.revision !== revision)
      return markOutdated(obj, { reason: 'NewRevision', message: `new upstream revision '${revision}'` })
    const why = this.source.outdated?.(obj, resolved)
    if (why) markOutdated(obj, why)
  }

  /** Nothing is stored, and nothing of the entries read, before the revision is verified. */
  async #store(obj: T, resolved: Resolved<U>, ctx: SourceContext): Promise<StoreResult & { summary: string }> {
    const fetched = await this.source.fetch(obj, resolved, ctx)
    try {
      tellVerified(obj, await this.source.verify?.(obj, resolved, ctx), ctx)
      const result = await this.#archive(obj, resolved, fetched, ctx.signal)
      return { ...result, summary: fetched.summary ?? `revision '${resolved.revision}'` }
    } finally {
      await fetched.close?.()
    }
  }

  #archive(obj: T, { revision }: Resolved<U>, fetched: Fetched, signal: AbortSignal): Promise<StoreResult> {
    return this.#options.storage.store(artifactFolder(this.source.kind, obj), revision, fetched.entries, {
      fileName: fileNameOf(revision),
      named: obj.status?.artifact,
      ignore: obj.spec.ignore,
      contentKey: fetched.contentKey,
      symlinks: fetched.symlinks,
      metadata: fetched.metadata,
      signal,
    })
  }

  /** The status fields that record what the stored bytes depend on. */
  #observed(obj: T, resolved: Resolved<U>): Record<string, unknown> {
    return { observedIgnore: obj.spec.ignore, ...this.source.observed?.(obj, resolved) }
  }

  #observedAsBefore(obj: T, resolved: Resolved<U>): boolean {
    const status = obj.status as Record<string, unknown>
    return Object.entries(this.#observed(obj, resolved)).every(([field, value]) => equal(status[field], value))
  }

  /** The Artifact goes first, then we let go; the files stay for the retention time, for whoever is about to download them. */
  async #finalize(obj: T, writer: Writer<T>, ctx: Context): Promise<Result> {
    if (!obj.metadata.finalizers?.includes(finalizer)) return {}
    await this.#publications.withdraw(obj, ctx)
    await setFinalizer(writer, obj, finalizer, false, ctx.signal)
    this.#publications.forget(`${obj.metadata.namespace}/${obj.metadata.name}`)
    ctx.log.info('source deleted, its files follow after the retention time')
    return {}
  }

  #jitter(intervalMs: number): number {
    const share = this.#options.intervalJitterPercentage / 100
    return Math.max(minIntervalMs, intervalMs * (1 - share + 2 * share * Math.random()))
  }
}

function upToDate(revision: string): { reason: string; message: string } {
  return { reason: 'ArtifactUpToDate', message: `artifact up-to-date with remote revision: '${revision}'` }
}
