import { hostname } from 'node:os'
import { request } from 'undici'
import { type Client, isStatus } from './client.ts'
import { messageOf } from './errors.ts'
import type { Kind, KubeObject } from './kind.ts'
import type { Logger } from './log.ts'

/** What an event is about and says. */
export interface EventNote {
  /** `trace` reaches `kubectl describe` as Normal and is never forwarded to `--events-addr`. */
  severity: 'info' | 'error' | 'trace'
  reason: string
  message: string
  /** E.g. `source.toolkit.fluxcd.io/revision`. Annotations `event.toolkit.fluxcd.io/*` of the object are added. */
  metadata?: Record<string, string> | undefined
}

/** Emits events without making the caller wait, and without ever failing it. */
export interface EventRecorder {
  emit(object: KubeObject, note: EventNote): void
}

/** `v1` Event. */
export interface CoreEvent extends KubeObject {
  involvedObject: Record<string, string | undefined>
  reason: string
  message: string
  type: string
  count: number
  firstTimestamp: string
  lastTimestamp: string
  source: { component: string; host?: string }
  reportingComponent: string
  reportingInstance: string
}

export const EventKind: Kind<CoreEvent> = { group: '', version: 'v1', kind: 'Event', plural: 'events' }

/** Equal events within this time are counted on one object, as client-go does. */
const aggregateMs = 10 * 60_000
/** Events of one object in a burst, and how long one of them takes to come back: client-go's spam filter. */
const burst = 25
/** Of these, so many are kept from traces, so that an object that is polled often can still report a failure. */
const traceReserve = 10
const refillMs = 5 * 60_000
const maxRemembered = 4096
/** Waiting writes; further events are dropped, since they must never hold up or bloat the work they report on. */
const maxPending = 1000
const maxMessage = 1024
const forwardTimeoutMs = 5_000

interface Remembered {
  name: string
  count: number
  lastAt: number
}

/** Writes Kubernetes Events (repeated ones as a count) and forwards info and error notes as JSON to Flux's notification-controller. */
export class KubeEventRecorder implements EventRecorder {
  readonly #client: Client
  readonly #component: string
  readonly #address: string
  readonly #log: Logger
  readonly #remembered: Map<string, Remembered> = new Map()
  readonly #tokens: Map<string, { left: number; at: number }> = new Map()
  #pending = 0
  #chain: Promise<void> = Promise.resolve()

  /** `component` is the controller's name; `address` is `--events-addr`, empty for none. */
  constructor(client: Client, component: string, address: string, log: Logger) {
    this.#client = client
    this.#component = component
    this.#address = address
    this.#log = log
  }

  emit(object: KubeObject, note: EventNote): void {
    const metadata = { ...note.metadata, ...eventAnnotations(object) }
    const snapshot = { apiVersion: object.apiVersion, kind: object.kind, metadata: object.metadata } as KubeObject
    if (this.#take(object.metadata.uid ?? '', note.severity === 'trace' ? traceReserve : 0))
      this.#enqueue(() => this.#record(snapshot, note, metadata))
    if (this.#address && note.severity !== 'trace') void this.#forward(snapshot, note, metadata)
  }

  /** Resolves when everything emitted so far has been tried. */
  flush(): Promise<void> {
    return this.#chain
  }

  #enqueue(write: () => Promise<void>): void {
    if (this.#pending >= maxPending) return
    this.#pending++
    // One at a time, so that the count of an event is never raised before the event exists.
    this.#chain = this.#chain
      .then(write)
      .catch((err: unknown) => this.#log.info({ error: messageOf(err) }, 'event not written'))
    this.#chain = this.#chain.finally(() => this.#pending--)
  }

  async #record(object: KubeObject, note: EventNote, metadata: Record<string, string>): Promise<void> {
    const now = Date.now()
    const id = [object.metadata.uid, note.severity, note.reason, note.message].join('\0')
    const known = this.#remembered.get(id)
    if (known && now - known.lastAt < aggregateMs) {
      known.count++
      known.lastAt = now
      if (await this.#raise(object, known)) return
    }
    const name = `${object.metadata.name.slice(0, 230)}.${(BigInt(now) * 1_000_000n + BigInt(this.#remembered.size)).toString(16)}`
    await this.#client.create(EventKind, this.#build(object, note, metadata, name, now), AbortSignal.timeout(10_000))
    this.#remember(id, { name, count: 1, lastAt: now })
  }

  /** False where the Event has expired meanwhile. */
  async #raise(object: KubeObject, known: Remembered): Promise<boolean> {
    const key = { namespace: object.metadata.namespace ?? 'default', name: known.name }
    const patch = { count: known.count, lastTimestamp: new Date(known.lastAt).toISOString() }
    try {
      await this.#client.patch(EventKind, key, patch, { signal: AbortSignal.timeout(10_000) })
      return true
    } catch (err) {
      if (isStatus(err, 404)) return false
      throw err
    }
  }

  #build(object: KubeObject, note: EventNote, metadata: Record<string, string>, name: string, now: number): CoreEvent {
    const at = new Date(now).toISOString()
    const { namespace = 'default', uid, resourceVersion } = object.metadata
    return {
      apiVersion: 'v1',
      kind: 'Event',
      metadata: { name, namespace, annotations: metadata },
      involvedObject: {
        apiVersion: object.apiVersion,
        kind: object.kind,
        namespace,
        name: object.metadata.name,
        uid,
        resourceVersion,
      },
      reason: note.reason,
      message: note.message.length > maxMessage ? `${note.message.slice(0, maxMessage - 3)}...` : note.message,
      type: note.severity === 'error' ? 'Warning' : 'Normal',
      count: 1,
      firstTimestamp: at,
      lastTimestamp: at,
      source: { component: this.#component },
      reportingComponent: this.#component,
      reportingInstance: hostname(),
    }
  }

  #remember(id: string, event: Remembered): void {
    this.#remembered.delete(id)
    this.#remembered.set(id, event)
    for (const oldest of this.#remembered.keys()) {
      if (this.#remembered.size <= maxRemembered) break
      this.#remembered.delete(oldest)
    }
  }

  /** Takes one event from the object's allowance, unless that would leave less than `reserve`. */
  #take(uid: string, reserve: number): boolean {
    const now = performance.now()
    const bucket = this.#tokens.get(uid) ?? { left: burst, at: now }
    const left = Math.min(burst, bucket.left + (now - bucket.at) / refillMs)
    const enough = left >= 1 + reserve
    this.#tokens.set(uid, { left: enough ? left - 1 : left, at: now })
    if (this.#tokens.size > maxRemembered) this.#tokens.delete(this.#tokens.keys().next().value!)
    return enough
  }

  /** The JSON body that Flux's notification-controller takes (flux pkg/apis/event/v1beta1). 429 means it has the event already. */
  async #forward(object: KubeObject, note: EventNote, metadata: Record<string, string>): Promise<void> {
    const { namespace, name, uid, resourceVersion } = object.metadata
    const body = {
      involvedObject: { apiVersion: object.apiVersion, kind: object.kind, namespace, name, uid, resourceVersion },
      severity: note.severity,
      timestamp: new Date().toISOString(),
      message: note.message,
      reason: note.reason,
      metadata,
      reportingController: this.#component,
      reportingInstance: hostname(),
    }
    try {
      const response = await request(this.#address, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(forwardTimeoutMs),
      })
      await response.body.dump()
      if (response.statusCode >= 400 && response.statusCode !== 429) throw new Error(`HTTP ${response.statusCode}`)
    } catch (err) {
      this.#log.info({ error: messageOf(err) }, 'event not forwarded')
    }
  }
}

function eventAnnotations(object: KubeObject): Record<string, string> {
  const annotations = Object.entries(object.metadata.annotations ?? {})
  return Object.fromEntries(annotations.filter(([name]) => name.startsWith('event.toolkit.fluxcd.io/')))
}
