import { randomUUID } from 'node:crypto'
import type { Client } from './client.ts'
import { isStatus } from './client.ts'
import type { Context } from './context.ts'
import { messageOf, ReconcileError, StalledError, WaitingError } from './errors.ts'
import type { EventRecorder } from './events.ts'
import type { Change, Informer } from './informer.ts'
import { type Kind, keyOf, type KubeObject, type ObjectKey, parseKey } from './kind.ts'
import type { Logger } from './log.ts'
import * as metrics from './metrics.ts'
import { minLongPerNamespace, Workers } from './workers.ts'
import { type Backoff, WorkQueue } from './workqueue.ts'

/** What follows a pass that went well; without `requeueAfterMs` nothing does until something changes. */
export interface Result {
  requeueAfterMs?: number
}

/** Brings one object from what it is to what its spec says. Idempotent, and never run twice at a time for one object. */
export type Reconcile = (key: ObjectKey, ctx: Context) => Promise<Result>

export interface ControllerOptions<T extends KubeObject> {
  /** The label of metrics and the `controller` of log lines: the kind in lower case. */
  name: string
  kind: Kind<T>
  informer: Informer<T>
  reconcile: Reconcile
  client: Client
  events: EventRecorder
  log: Logger
  concurrent: number
  backoff: Backoff
  /** The wait after a WaitingError, in ms. */
  requeueDependencyMs: number
}

/** The annotation by which people and webhooks ask for a pass now. */
export const requestedAtAnnotation = 'reconcile.fluxcd.io/requestedAt'

/** Watches one kind and keeps a number of workers busy with the objects that changed. */
export class Controller<T extends KubeObject = KubeObject> {
  readonly name: string
  readonly kind: Kind<T>
  readonly informer: Informer<T>
  readonly #options: ControllerOptions<T>
  #queue: WorkQueue | undefined
  /** Called after each pass, whatever came of it. */
  onPass: ((key: string) => void) | undefined

  constructor(options: ControllerOptions<T>) {
    this.#options = options
    this.name = options.name
    this.kind = options.kind
    this.informer = options.informer
    metrics.maxConcurrent.set({ controller: this.name }, options.concurrent)
  }

  /** Asks for a pass over `namespace/name` now. Without effect while this process does not lead. */
  enqueue(key: string): void {
    this.#queue?.add(key)
  }

  /** As `enqueue`, but does not cut short the wait after a failure. */
  enqueueUnlessFailing(key: string): void {
    this.#queue?.addUnlessFailing(key)
  }

  /** Works until `signal` aborts and the passes under way have ended: one term of leadership. The keys in `first` come before all others. */
  async run(signal: AbortSignal, first: Iterable<string> = []): Promise<void> {
    const { backoff, concurrent } = this.#options
    const queue = new WorkQueue(backoff, Math.max(concurrent, minLongPerNamespace))
    queue.onAdd = () => metrics.queueAdds.inc({ name: this.name })
    this.#queue = queue
    for (const key of first) queue.add(key)
    const stopListening = this.informer.onChange((change) => {
      if (matters(change)) queue.add(keyOf(change.object))
    })
    const stop = () => queue.close()
    signal.addEventListener('abort', stop, { once: true })
    if (signal.aborted) stop()
    try {
      await new Workers(queue, { concurrent, pass: (key) => this.#work(key, queue, signal) }).run()
    } finally {
      stopListening()
      signal.removeEventListener('abort', stop)
      this.#queue = undefined
    }
  }

  async #work(key: string, queue: WorkQueue, signal: AbortSignal): Promise<void> {
    metrics.queueDepth.set({ name: this.name }, queue.depth)
    try {
      await this.#pass(key, queue, signal)
    } finally {
      this.onPass?.(key)
    }
  }

  async #pass(key: string, queue: WorkQueue, signal: AbortSignal): Promise<void> {
    const { client, events, log: parent, kind, reconcile } = this.#options
    const { namespace, name } = parseKey(key)
    const log = parent.child({
      controller: this.name,
      controllerGroup: kind.group,
      controllerKind: kind.kind,
      namespace,
      name,
      reconcileID: randomUUID(),
    })
    const startedAt = performance.now()
    metrics.activeWorkers.inc({ controller: this.name })
    try {
      const result = await reconcile({ namespace, name }, { client, events, log, signal })
      this.#succeeded(key, queue, result)
    } catch (err) {
      if (!signal.aborted) this.#failed(key, queue, err, log)
    } finally {
      const seconds = (performance.now() - startedAt) / 1000
      metrics.activeWorkers.dec({ controller: this.name })
      metrics.reconcileSeconds.observe({ controller: this.name }, seconds)
      const labels = { kind: kind.kind, name, namespace }
      if (this.informer.cache.get(key)) metrics.objectSeconds.observe(labels, seconds)
      else metrics.objectSeconds.remove(labels) // or every object there ever was would stay in memory
    }
  }

  #succeeded(key: string, queue: WorkQueue, result: Result): void {
    queue.forget(key)
    const again = result.requeueAfterMs !== undefined
    if (again) queue.addAfter(key, result.requeueAfterMs!)
    metrics.reconcileTotal.inc({ controller: this.name, result: again ? 'requeue_after' : 'success' })
  }

  /** The whole retry policy. */
  #failed(key: string, queue: WorkQueue, err: unknown, log: Logger): void {
    const controller = this.name
    if (isStatus(err, 409)) {
      // Somebody else wrote meanwhile: what we decided on is old news. Look again, quietly.
      log.debug({ error: messageOf(err) }, 'conflict, will look again')
      queue.addFailed(key)
      metrics.reconcileTotal.inc({ controller, result: 'requeue' })
      return
    }
    metrics.reconcileTotal.inc({ controller, result: 'error' })
    metrics.reconcileErrors.inc({ controller })
    if (err instanceof StalledError) {
      log.error({ reason: err.reason, error: err.message }, 'stalled')
      metrics.terminalErrors.inc({ controller })
      queue.forget(key)
    } else if (err instanceof WaitingError) {
      log.info({ reason: err.reason, error: err.message }, 'waiting')
      queue.forget(key)
      queue.addAfter(key, err.retryAfterMs ?? this.#options.requeueDependencyMs)
    } else {
      const expected = err instanceof ReconcileError
      if (!expected) metrics.reconcilePanics.inc({ controller })
      log.error(expected ? { reason: err.reason, error: err.message } : { error: err }, 'reconciliation failed')
      metrics.queueRetries.inc({ name: controller })
      queue.addFailed(key, expected ? err.retryAfterMs : 0)
    }
  }
}

/** Whether a change calls for a pass. Our own status patches change neither generation nor annotation. */
function matters<T extends KubeObject>(change: Change<T>): boolean {
  if (change.type !== 'updated') return true
  const now = change.object.metadata
  const before = change.previous.metadata
  return (
    now.generation !== before.generation ||
    now.deletionTimestamp !== before.deletionTimestamp ||
    now.annotations?.[requestedAtAnnotation] !== before.annotations?.[requestedAtAnnotation]
  )
}
