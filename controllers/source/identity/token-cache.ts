import { createHash } from 'node:crypto'
import { tokenCacheEvents, tokenCacheEvictions, tokenCacheItems, tokenCacheRequests } from '../../runtime/metrics.ts'
import { SharedCalls } from '../../runtime/shared-calls.ts'

/** Something that proves who we are, for a while. */
export interface Token<V> {
  value: V
  /** In ms since 1970; undefined where it does not say. */
  expiresAtMs?: number | undefined
}

export interface TokenCacheOptions {
  /** 0: nothing is kept. */
  maxEntries: number
  maxDurationMs: number
}

/** On whose behalf a token is asked for; the labels of its metric. */
export interface TokenUser {
  kind: string
  name: string
  namespace: string
}

/** The part of its life for which a token is used: clocks differ, and what is begun with it must come to its end. */
const usedShare = 0.8

/** Tokens that were asked for before, each until four fifths of its life have passed. Those used last are kept. */
export class TokenCache {
  readonly #options: TokenCacheOptions
  readonly #entries: Map<string, { value: unknown; untilMs: number }> = new Map()
  readonly #calls = new SharedCalls<unknown>()

  constructor(options: TokenCacheOptions) {
    this.#options = options
  }

  /**
   * The token for what `parts` name together (everything that it depends on; only their hash is kept), else what `make` gives. Callers who want the same
   * one at the same time share one request.
   */
  async get<V>(
    parts: readonly unknown[],
    user: TokenUser,
    signal: AbortSignal,
    make: (signal: AbortSignal) => Promise<Token<V>>,
  ): Promise<V> {
    const key = createHash('sha256').update(JSON.stringify(parts)).digest('hex')
    const known = this.#entries.get(key)
    const isFresh = known !== undefined && Date.now() < known.untilMs
    const operation = 'reconcile'
    tokenCacheEvents.inc({ event_type: isFresh ? 'cache_hit' : 'cache_miss', ...user, operation })
    if (isFresh) {
      this.#entries.delete(key)
      this.#entries.set(key, known)
      return known.value as V
    }
    return (await this.#calls.run(key, signal, (shared) => this.#ask(key, () => make(shared)))) as V
  }

  async #ask<V>(key: string, make: () => Promise<Token<V>>): Promise<V> {
    const status = (result: 'success' | 'failure') => tokenCacheRequests.inc({ status: result })
    const { value, expiresAtMs = Infinity } = await make().catch((err: unknown) => {
      status('failure')
      throw err
    })
    status('success')
    const now = Date.now()
    const { maxDurationMs, maxEntries } = this.#options
    this.#entries.delete(key)
    this.#entries.set(key, { value, untilMs: now + Math.min((expiresAtMs - now) * usedShare, maxDurationMs) })
    for (const [oldest] of this.#entries) {
      if (this.#entries.size <= maxEntries) break
      this.#entries.delete(oldest)
      if (oldest !== key) tokenCacheEvictions.inc()
    }
    tokenCacheItems.set(this.#entries.size)
    return value
  }
}
