import { applyArtifact, artifactFolder, cachedArtifact, isCurrent, type ServedArtifact } from '../artifact/artifact.ts'
import type { Storage } from '../artifact/storage/storage.ts'
import type { StoredArtifact } from '../artifact/stored.ts'
import { type Artifact, ArtifactKind } from '../artifact/types.ts'
import type { Context } from '../runtime/context.ts'
import type { Result } from '../runtime/controller.ts'
import { durationOf } from '../runtime/duration.ts'
import { messageOf } from '../runtime/errors.ts'
import type { Informer } from '../runtime/informer.ts'
import { apiVersionOf, type ObjectKey } from '../runtime/kind.ts'
import { equal } from '../runtime/merge-patch.ts'
import { setFinalizer, type Writer } from '../runtime/status.ts'
import { withTimeout } from '../runtime/timeout.ts'
import { markBuilding, markNewGeneration, markOutdated, markStored, markVerified } from './conditions.ts'
import { observe, OutcomeWriter, tellFailure, tellStored, tellUnchanged } from './outcome.ts'
import { makeSourceContext } from './context.ts'
import type { Fetched, Resolved, Source, SourceContext, SourceObject } from './source.ts'

/** Kept from Flux, so that either controller lets go of what the other one has held. */
export const finalizer = 'finalizers.fluxcd.io'

const defaultTimeout = '60s'
/** However short the interval: one object must not keep upstream and the API server busy. */
const minIntervalMs = 1_000

export interface ReconcilerOptions<T extends SourceObject> {
  storage: Storage
  objects: Informer<T>
  artifacts: Informer<Artifact>
  /** The URL under which others reach a stored path. */
  urlOf(path: string): string
  intervalJitterPercentage: number
}

/** One pass over one source, the same for every kind: what is stored, what upstream has, and if they differ: fetch, verify, store, tell. */
export class SourceReconciler<T extends SourceObject, U> {
  readonly source: Source<T, U>
  readonly #options: ReconcilerOptions<T>
  /** What the Artifact of each object should say, once this process has written it. */
  readonly #wanted: Map<string, ServedArtifact> = new Map()

  constructor(source: Source<T, U>, options: ReconcilerOptions<T>) {
    this.source = source
    this.#options = options
  }

  /** Whether somebody else has changed or deleted the Artifact of this object. */
  isDisturbed(key: string): boolean {
    const obj = this.#options.objects.cache.get(key)
    const wanted = this.#wanted.get(key)
    if (!obj || !wanted || obj.metadata.deletionTimestamp) return false
    return !isCurrent(cachedArtifact(this.#options.artifacts, this.source.kind, obj), obj, wanted)
  }

  async reconcile(key: ObjectKey, ctx: Context): Promise<Result> {
    const cached = this.#options.objects.cache.get(`${key.namespace}/${key.name}`)
    if (!cached) {
      this.#wanted.delete(`${key.namespace}/${key.name}`)
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
    return this.#pass(before, writer, ctx)
  }

  async #withFinalizer(obj: T, writer: Writer<T>, ctx: Context): Promise<T> {
    if (obj.metadata.finalizers?.includes(finalizer)) return obj
    const written = await setFinalizer(writer, obj, finalizer, true, ctx.signal)
    return { ...obj, metadata: written.metadata }
  }

  /** Runs the pass within the object's timeout and writes its outcome, once, for good or ill. */
  async #pass(before: T, writer: Writer<T>, ctx: Context): Promise<Result> {
    const obj = structuredClone(before)
    const outcome = new OutcomeWriter(writer, before, obj, ctx)
    try {
      if (obj.status?.observedGeneration !== obj.metadata.generation) markNewGeneration(obj)
      const timeoutMs = durationOf('spec.timeout', obj.spec.timeout ?? defaultTimeout)
      const intervalMs = durationOf('spec.interval', obj.spec.interval)
      await withTimeout('spec.timeout', timeoutMs, ctx, (bounded) =>
        this.#reconcileArtifact(before, obj, makeSourceContext(bounded, obj, this.#options.artifacts)),
      )
      observe(obj)
      return { requeueAfterMs: this.#jitter(intervalMs) }
    } catch (err) {
      if (!ctx.signal.aborted) tellFailure(obj, err, ctx)
      throw err
    } finally {
      await outcome.write(obj)
    }
  }

  /** stored? -> resolve -> unchanged? -> fetch -> verify -> store -> Artifact -> status -> garbage collection */
  async #reconcileArtifact(before: T, obj: T, ctx: SourceContext): Promise<void> {
    const stored = await this.#checkStored(obj, ctx)
    // Whatever upstream says next: what is stored can be found, also after a change of the address it is served at.
    if (stored) await this.#publish(obj, stored, ctx)
    const resolved = await this.source.resolve(obj, ctx)
    if (stored?.revision === resolved.revision && this.#observedAsBefore(obj, resolved)) {
      markStored(obj, resolved.revision)
      tellUnchanged(before, obj, this.source.unchanged?.(resolved.revision) ?? upToDate(resolved.revision), ctx)
    } else {
      if (obj.status?.artifact?.revision !== resolved.revision) markOutdated(obj, resolved.revision)
      const { artifact, fetched, verified } = await this.#store(obj, resolved, ctx)
      await this.#publish(obj, artifact, ctx)
      obj.status = { ...obj.status, ...this.#observed(obj, resolved) }
      markVerified(obj, verified)
      markStored(obj, resolved.revision)
      tellStored(before, obj, fetched.summary ?? `revision '${resolved.revision}'`, ctx)
    }
    await this.#collectGarbage(obj, ctx)
  }

  /** Old files are no part of the outcome: what cannot be removed now will be the next time. */
  async #collectGarbage(obj: T, ctx: Context): Promise<void> {
    const { storage } = this.#options
    try {
      await storage.collectGarbage(artifactFolder(this.source.kind, obj), obj.status?.artifact?.path)
    } catch (err) {
      ctx.log.error({ error: messageOf(err) }, 'garbage collection failed')
    }
  }

  /** The artifact that the status names, by the storage's own record, if it is there and right; else why it must be built goes into the conditions. */
  async #checkStored(obj: T, ctx: Context): Promise<StoredArtifact | undefined> {
    const named = obj.status?.artifact
    if (!named) {
      markBuilding(obj, '')
      return undefined
    }
    const { storage } = this.#options
    const folder = artifactFolder(this.source.kind, obj)
    const state = isIn(folder, named.path) ? await storage.check(named) : 'missing'
    if (state === 'damaged') {
      const message = `failed to verify integrity of artifact: computed digest doesn't match '${named.digest}'`
      ctx.events.emit(obj, { severity: 'error', reason: 'ArtifactVerificationFailed', message })
      ctx.log.error({ path: named.path }, message)
      await storage.discard(named.path)
    }
    // A status can be written by hand, and a pass can end between storing and publishing: only the current entry of the record counts.
    const current = state === 'intact' ? await storage.find(folder, 'latest') : undefined
    if (current?.path === named.path && current.digest === named.digest && current.revision === named.revision)
      return current
    ctx.log.info({ path: named.path, state }, 'artifact must be built anew')
    markBuilding(obj, 'disappeared from storage')
    return undefined
  }

  async #store(
    obj: T,
    resolved: Resolved<U>,
    ctx: SourceContext,
  ): Promise<{ artifact: StoredArtifact; fetched: Fetched; verified: string | undefined }> {
    const { storage } = this.#options
    const fetched = await this.source.fetch(obj, resolved, ctx)
    try {
      const verified = await this.source.verify?.(obj, resolved, ctx)
      const { artifact } = await storage.store(
        artifactFolder(this.source.kind, obj),
        resolved.revision,
        fetched.entries,
        {
          fileName: fileNameOf(resolved.revision),
          named: obj.status?.artifact,
          ignore: obj.spec.ignore,
          metadata: fetched.metadata,
          signal: ctx.signal,
        },
      )
      return { artifact, fetched, verified }
    } finally {
      await fetched.close?.()
    }
  }

  /** Lets the Artifact say what is stored, and then the status. The bytes are being served already. */
  async #publish(obj: T, stored: Omit<ServedArtifact, 'url'>, ctx: Context): Promise<void> {
    const served: ServedArtifact = { ...stored, url: this.#options.urlOf(stored.path) }
    const known = cachedArtifact(this.#options.artifacts, this.source.kind, obj)
    this.#wanted.set(`${obj.metadata.namespace}/${obj.metadata.name}`, served)
    if (!isCurrent(known, obj, served)) {
      const written = await applyArtifact(ctx.client, this.source.kind, obj, served, known, ctx.signal)
      this.#options.artifacts.put(written)
    }
    obj.status = { ...obj.status, artifact: served }
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
    const artifact = cachedArtifact(this.#options.artifacts, this.source.kind, obj)
    if (artifact?.metadata.ownerReferences?.some((owner) => owner.uid === obj.metadata.uid)) {
      const key = { namespace: obj.metadata.namespace ?? '', name: artifact.metadata.name }
      await ctx.client.delete(ArtifactKind, key, artifact.metadata.uid, ctx.signal)
    }
    await setFinalizer(writer, obj, finalizer, false, ctx.signal)
    this.#wanted.delete(`${obj.metadata.namespace}/${obj.metadata.name}`)
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

/** A status written by hand, or by another tool, must not make us read or delete files of other objects. */
function isIn(folder: string, path: string): boolean {
  return path.startsWith(`${folder}/`) && !path.slice(folder.length + 1).includes('/')
}

/** The hash of a revision names its file; whatever could not stand in a file name is left out. */
function fileNameOf(revision: string): string {
  const hash = revision.slice(revision.lastIndexOf(':') + 1)
  return hash.replace(/[^A-Za-z0-9._+-]/g, '_').replace(/^\.+/, '')
}
