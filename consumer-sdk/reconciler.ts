import type { Artifact } from '../controllers/artifact/types.ts'
import type { Context } from '../controllers/runtime/context.ts'
import type { Result } from '../controllers/runtime/controller.ts'
import { durationOf } from '../controllers/runtime/duration.ts'
import { messageOf, StalledError } from '../controllers/runtime/errors.ts'
import type { Informer } from '../controllers/runtime/informer.ts'
import { apiVersionOf, keyOf, type ObjectKey } from '../controllers/runtime/kind.ts'
import { patchStatus, setFinalizer, type Writer } from '../controllers/runtime/status.ts'
import { withTimeout } from '../controllers/runtime/timeout.ts'
import { AppliedRecord, requestedAt } from './applied.ts'
import { type HandleOptions, withArtifact } from './artifact-handle.ts'
import { tellApplied, tellFailure, tellUnchanged } from './outcome.ts'
import { resolveArtifact } from './resolve.ts'
import type { Consumer, ConsumerObject } from './types.ts'

/** The one of all of Flux's kinds, so that either controller lets go of what the other one has held. */
export const finalizer = 'finalizers.fluxcd.io'

export interface ConsumerReconcilerOptions<T extends ConsumerObject> extends HandleOptions {
  objects: Informer<T>
  artifacts: Informer<Artifact>
  noCrossNamespaceRefs: boolean
  intervalJitterPercentage: number
}

/** One pass over one consuming object: find the artifact, call the consumer if anything has changed, tell. */
export class ConsumerReconciler<T extends ConsumerObject> {
  readonly #consumer: Consumer<T>
  readonly #options: ConsumerReconcilerOptions<T>
  readonly #applied = new AppliedRecord()
  /** Statuses that could not be written, by key: what a consumer reports must not be lost with the API server's connection. */
  readonly #unwritten: Map<string, T> = new Map()

  constructor(consumer: Consumer<T>, options: ConsumerReconcilerOptions<T>) {
    this.#consumer = consumer
    this.#options = options
  }

  /** Forgets what an earlier term of leadership has seen. */
  reset(): void {
    this.#applied.clear()
    this.#unwritten.clear()
  }

  async reconcile({ namespace, name }: ObjectKey, ctx: Context): Promise<Result> {
    const key = `${namespace}/${name}`
    const cached = this.#options.objects.cache.get(key)
    if (!cached) {
      this.#applied.forget(key)
      this.#unwritten.delete(key)
      return {}
    }
    const { kind } = this.#consumer
    const writer: Writer<T> = { client: ctx.client, kind, informer: this.#options.objects }
    // Items of a list carry neither; events need both.
    const read: T = { ...structuredClone(cached), apiVersion: apiVersionOf(kind), kind: kind.kind }
    if (read.metadata.deletionTimestamp) return this.#finalize(read, writer, ctx)
    if (read.spec?.suspend) {
      ctx.log.info('reconciliation is suspended for this object')
      return {}
    }
    const before = await this.#withFinalizer(read, writer, ctx)
    return this.#pass(before, writer, ctx)
  }

  async #withFinalizer(obj: T, writer: Writer<T>, ctx: Context): Promise<T> {
    if (!this.#consumer.finalize || obj.metadata.finalizers?.includes(finalizer)) return obj
    const written = await setFinalizer(writer, obj, finalizer, true, ctx.signal)
    return { ...obj, metadata: written.metadata }
  }

  async #pass(before: T, writer: Writer<T>, ctx: Context): Promise<Result> {
    const seen = this.#withUnwritten(before)
    const obj = structuredClone(seen)
    try {
      const { timeout } = obj.spec ?? {}
      const work = (bounded: Context) => this.#apply(seen, obj, bounded)
      if (timeout === undefined) await work(ctx)
      else await withTimeout('spec.timeout', durationOf('spec.timeout', timeout), ctx, work)
    } catch (err) {
      if (ctx.signal.aborted) throw err
      tellFailure(seen, obj, err, ctx)
      await this.#write(before, obj, writer, ctx).catch((failed: unknown) =>
        ctx.log.error({ error: messageOf(failed) }, 'status not written'),
      )
      throw err
    }
    await this.#write(before, obj, writer, ctx)
    const requeueAfterMs = this.#applied.dueInMs(obj)
    return requeueAfterMs === undefined ? {} : { requeueAfterMs }
  }

  /** The object with the status that it would have if it could have been written. */
  #withUnwritten(obj: T): T {
    const unwritten = this.#unwritten.get(keyOf(obj))
    if (!unwritten?.status || unwritten.metadata.uid !== obj.metadata.uid) return obj
    return { ...obj, status: structuredClone(unwritten.status) }
  }

  /** resolve -> anything new? -> call the consumer */
  async #apply(before: T, obj: T, ctx: Context): Promise<void> {
    const intervalMs = this.#intervalMs(obj)
    const artifact = resolveArtifact(
      this.#options.artifacts.cache,
      this.#consumer.sourceRef(obj),
      obj.metadata.namespace ?? '',
      { noCrossNamespaceRefs: this.#options.noCrossNamespaceRefs, allowedKinds: this.#consumer.allowedKinds },
    )
    const trigger = this.#applied.trigger(obj, artifact.digest, intervalMs)
    if (!trigger) return tellUnchanged(before, obj, artifact, this.#consumer.kind, ctx)
    obj.status = { ...obj.status, lastAttemptedRevision: artifact.revision }
    try {
      const result = await withArtifact(artifact, this.#options, ctx.signal, (handle) =>
        this.#consumer.reconcile(obj, handle, ctx),
      )
      const { message, requeueAfterMs } = result ?? {}
      tellApplied(before, obj, { artifact, trigger, message }, this.#consumer.kind, ctx)
      this.#applied.succeeded(obj, artifact.digest, earliest(requeueAfterMs, intervalMs))
    } catch (err) {
      this.#applied.failed(obj)
      throw err
    }
  }

  /** Keeps what could not be written for the next pass, which must not call the consumer again only for that. */
  async #write(before: T, obj: T, writer: Writer<T>, ctx: Context): Promise<void> {
    const key = keyOf(obj)
    const handled = requestedAt(obj)
    if (handled) obj.status = { ...obj.status, lastHandledReconcileAt: handled }
    this.#unwritten.set(key, obj)
    await patchStatus(writer, before, obj, ctx.signal)
    this.#unwritten.delete(key)
  }

  async #finalize(before: T, writer: Writer<T>, ctx: Context): Promise<Result> {
    if (!this.#consumer.finalize || !before.metadata.finalizers?.includes(finalizer)) return {}
    if (!before.spec?.suspend) {
      const obj = structuredClone(this.#withUnwritten(before))
      try {
        await this.#consumer.finalize(obj, ctx)
      } catch (err) {
        if (ctx.signal.aborted) throw err
        tellFailure(before, obj, err, ctx)
        await this.#write(before, obj, writer, ctx)
        throw err
      }
    }
    await setFinalizer(writer, before, finalizer, false, ctx.signal)
    ctx.log.info('object let go')
    return {}
  }

  #intervalMs(obj: T): number | undefined {
    const { interval } = obj.spec ?? {}
    if (interval === undefined) return undefined
    const intervalMs = durationOf('spec.interval', interval)
    if (intervalMs < minIntervalMs)
      throw new StalledError('InvalidDuration', `spec.interval: '${interval}' is less than ${minIntervalMs / 1000}s`)
    const share = this.#options.intervalJitterPercentage / 100
    return intervalMs * (1 - share + 2 * share * Math.random())
  }
}

/** Shorter ones would only keep a worker busy. */
const minIntervalMs = 1_000

function earliest(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.min(a, b)
}
