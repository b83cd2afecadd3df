import { isTrue, ReadyCondition } from '../controllers/runtime/conditions.ts'
import { requestedAtAnnotation } from '../controllers/runtime/controller.ts'
import { keyOf } from '../controllers/runtime/kind.ts'
import type { ConsumerObject } from './types.ts'

/** Why a pass calls the consumer. `spec` stands for whatever the object itself asks for: a new spec, a first time, a retry. */
export type Trigger = 'digest' | 'spec' | 'requested' | 'interval'

interface Applied {
  uid: string
  generation: number
  digest: string
  requestedAt: string | undefined
  /** On the monotonic clock; the consumer is called then whatever has changed. */
  dueAt: number
}

/** No object has this generation. */
const never = -1

/**
 * What was applied last and went well, per object. The status alone does not tell: a kind's CRD may lack the fields, and a failed pass over bytes that were
 * applied before must be tried again.
 */
export class AppliedRecord {
  readonly #applied: Map<string, Applied> = new Map()

  /** Why the consumer is to be called now; undefined where nothing has changed since it last went well. */
  trigger(obj: ConsumerObject, digest: string, intervalMs: number | undefined): Trigger | undefined {
    const last = this.#lastOf(obj, intervalMs)
    if (!last || last.generation !== generationOf(obj)) return 'spec'
    if (last.digest !== digest) return 'digest'
    if (requestedAt(obj) && last.requestedAt !== requestedAt(obj)) return 'requested'
    return performance.now() >= last.dueAt ? 'interval' : undefined
  }

  succeeded(obj: ConsumerObject, digest: string, dueInMs: number | undefined): void {
    this.#applied.set(keyOf(obj), {
      uid: obj.metadata.uid ?? '',
      generation: generationOf(obj),
      digest,
      requestedAt: requestedAt(obj),
      dueAt: performance.now() + (dueInMs ?? Infinity),
    })
  }

  /** The next pass calls the consumer, whatever else and whatever the status says. */
  failed(obj: ConsumerObject): void {
    const { uid = '' } = obj.metadata
    this.#applied.set(keyOf(obj), { uid, generation: never, digest: '', requestedAt: undefined, dueAt: Infinity })
  }

  forget(key: string): void {
    this.#applied.delete(key)
  }

  /** Another process may have led meanwhile. */
  clear(): void {
    this.#applied.clear()
  }

  /** Ms until the consumer is to be called again; undefined for never. */
  dueInMs(obj: ConsumerObject): number | undefined {
    const last = this.#applied.get(keyOf(obj))
    if (!last || last.dueAt === Infinity) return undefined
    return Math.max(last.dueAt - performance.now(), 1)
  }

  #lastOf(obj: ConsumerObject, intervalMs: number | undefined): Applied | undefined {
    const known = this.#applied.get(keyOf(obj))
    if (known) return known.uid === obj.metadata.uid ? known : undefined
    const { status } = obj
    const settled = isTrue(obj, ReadyCondition) && status?.observedGeneration === generationOf(obj)
    if (!settled || !status.lastAppliedDigest) return undefined
    // At a random moment of the interval: a restart must not run everything at once, nor put everything off again.
    this.succeeded(obj, status.lastAppliedDigest, intervalMs === undefined ? undefined : intervalMs * Math.random())
    const seeded = this.#applied.get(keyOf(obj))!
    seeded.requestedAt = status.lastHandledReconcileAt
    return seeded
  }
}

export function requestedAt(obj: ConsumerObject): string | undefined {
  return obj.metadata.annotations?.[requestedAtAnnotation] || undefined
}

function generationOf(obj: ConsumerObject): number {
  return obj.metadata.generation ?? 0
}
