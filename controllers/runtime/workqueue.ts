import { FairKeys } from './fair-keys.ts'
import { parseKey } from './kind.ts'

/** Delays of the per-key backoff, in ms. */
export interface Backoff {
  minMs: number
  maxMs: number
}

/**
 * A queue of keys in which each key stands once and is never handed out twice at a time: a key added while it is being
 * worked on comes again after `done`. The order is that of arrival within a namespace, and namespaces take turns, so that neither one
 * key that always fails nor one namespace with many can starve others.
 */
export class WorkQueue {
  readonly #backoff: Backoff
  readonly #maxLongPerNamespace: number
  readonly #ready = new FairKeys()
  readonly #working: Set<string> = new Set()
  readonly #again: Set<string> = new Set()
  /** Keys that have been worked on for long, by namespace. */
  readonly #long: Map<string, Set<string>> = new Map()
  readonly #timers: Map<string, { timer: NodeJS.Timeout; at: number }> = new Map()
  readonly #failures: Map<string, number> = new Map()
  readonly #waiters: ((key: string | undefined) => void)[] = []
  #closed = false
  /** Called for each key that enters, e.g. for a metric. */
  onAdd: (() => void) | undefined

  /** A namespace that has `maxLongPerNamespace` keys in long passes gets no further ones worked on. */
  constructor(backoff: Backoff, maxLongPerNamespace: number = Infinity) {
    this.#backoff = backoff
    this.#maxLongPerNamespace = maxLongPerNamespace
  }

  /** Keys waiting for a worker; delayed ones do not count. */
  get depth(): number {
    return this.#ready.size
  }

  /** Adds a key now, which ends any delay it waits for. */
  add(key: string): void {
    if (this.#closed) return
    this.#cancelDelay(key)
    if (this.#working.has(key)) {
      this.#again.add(key)
      return
    }
    if (this.#ready.has(key)) return
    this.onAdd?.()
    this.#ready.add(key)
    this.#handOut()
  }

  /** Adds a key now unless it waits out a backoff: for what may be asked for again and again while it cannot succeed. */
  addUnlessFailing(key: string): void {
    if (this.#failures.has(key) && this.#timers.has(key)) return
    this.add(key)
  }

  /** Adds a key after `delayMs`. Of several delays for one key the earliest counts. */
  addAfter(key: string, delayMs: number): void {
    if (this.#closed) return
    if (delayMs <= 0) return this.add(key)
    const at = performance.now() + delayMs
    const pending = this.#timers.get(key)
    if (pending && pending.at <= at) return
    this.#cancelDelay(key)
    // setTimeout holds 2^31-1 ms; a longer delay is cut there, which only means an early look.
    const timer = setTimeout(() => this.add(key), Math.min(delayMs, 2 ** 31 - 1))
    this.#timers.set(key, { timer, at })
  }

  /** Adds a key after its backoff, which doubles with each failure since the last `forget`. Never sooner than `atLeastMs`. */
  addFailed(key: string, atLeastMs = 0): void {
    const failures = this.#failures.get(key) ?? 0
    this.#failures.set(key, failures + 1)
    const backoffMs = Math.min(this.#backoff.minMs * 2 ** Math.min(failures, 40), this.#backoff.maxMs)
    this.addAfter(key, Math.max(backoffMs, atLeastMs))
  }

  /** The key has succeeded or is gone: its backoff begins anew. */
  forget(key: string): void {
    this.#failures.delete(key)
  }

  /** The next key, which counts as being worked on until `done(key)`; undefined once the queue is closed. */
  take(): Promise<string | undefined> {
    if (this.#closed) return Promise.resolve(undefined)
    const { promise, resolve } = Promise.withResolvers<string | undefined>()
    this.#waiters.push(resolve)
    this.#handOut()
    return promise
  }

  /** The key is being worked on for long already. */
  markLong(key: string): void {
    const { namespace } = parseKey(key)
    const keys = this.#long.get(namespace)
    if (keys) keys.add(key)
    else this.#long.set(namespace, new Set([key]))
  }

  done(key: string): void {
    this.#working.delete(key)
    const { namespace } = parseKey(key)
    const long = this.#long.get(namespace)
    long?.delete(key)
    if (long?.size === 0) this.#long.delete(namespace)
    if (this.#again.delete(key)) this.add(key)
    this.#handOut() // the namespace may have been waiting for this
  }

  #handOut(): void {
    while (this.#waiters.length > 0) {
      const key = this.#ready.take((ns) => (this.#long.get(ns)?.size ?? 0) < this.#maxLongPerNamespace)
      if (key === undefined) return
      this.#working.add(key)
      this.#waiters.shift()?.(key)
    }
  }

  /** Ends all waits; nothing is handed out any more. */
  close(): void {
    this.#closed = true
    for (const { timer } of this.#timers.values()) clearTimeout(timer)
    this.#timers.clear()
    this.#ready.clear()
    for (const waiter of this.#waiters.splice(0)) waiter(undefined)
  }

  #cancelDelay(key: string): void {
    clearTimeout(this.#timers.get(key)?.timer)
    this.#timers.delete(key)
  }
}
