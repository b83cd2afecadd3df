import { createHmac, randomBytes } from 'node:crypto'
import { type Client, isStatus } from './client.ts'
import { messageOf, ReconcileError } from './errors.ts'
import type { ObjectKey } from './kind.ts'
import { getSecret, type Secret, SecretKind } from './secret.ts'
import { sleep } from './sleep.ts'
import { readWatch, type WatchEvent } from './watch.ts'

/** How long one watch is asked to live. Far longer than an informer's: one that has died unnoticed only means that the interval decides. */
const watchSeconds = 300
const silenceMs = 15_000
/** A watch that ended sooner than this counts as a failed one. */
const shortLivedMs = 1_000
const minBackoffMs = 1_000
const maxBackoffMs = 60_000
/** How long the right to watch is not asked for again, once it was refused. */
const deniedMs = 600_000

/** The digest of a Secret that is not there. */
export const absentDigest = ''

/** Keyed, so that a digest tells nobody what it was made of, not even by trial. */
const digestKey = randomBytes(32)

/** Equal for equal data, within this process. */
export function digestOf(secret: Secret | undefined): string {
  if (!secret) return absentDigest
  const data = Object.entries(secret.data ?? {}).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return createHmac('sha256', digestKey).update(JSON.stringify(data)).digest('base64')
}

export interface SecretWatchOptions {
  client: Client
  key: ObjectKey
  /** Called with the digest that the server has, whenever it has told it, also when it is the one before. */
  onDigest(digest: string): void
  /** Called when the right to watch it is refused. */
  onDenied(why: string): void
}

/** Follows one Secret by its name; needs the right to get and watch that one, not to list. Keeps nothing of it but a digest. */
export class SecretWatch {
  readonly #options: SecretWatchOptions
  #digest: string
  /** Where the next watch begins; '' is now, beginning with what is there; undefined: only after a look. */
  #version: string | undefined
  #watching: AbortController | undefined

  /** `secret` is what was read a moment ago: nothing that follows it is missed. */
  constructor(options: SecretWatchOptions, secret: Secret | undefined) {
    this.#options = options
    this.#digest = digestOf(secret)
    this.#version = versionOf(secret)
  }

  /** What the server is known to have. */
  get digest(): string {
    return this.#digest
  }

  /** Looks at once instead of waiting for an event: somebody has read something else than what is known here. */
  look(): void {
    this.#version = undefined
    this.#watching?.abort(new Error('a look is due'))
  }

  /** Follows the Secret until `signal` aborts. Never throws. */
  async run(signal: AbortSignal): Promise<void> {
    for (let failures = 0; !signal.aborted;) {
      const startedAt = performance.now()
      const err = await this.#follow(signal).catch((thrown: unknown) => thrown)
      if (signal.aborted) return
      if (err !== undefined) this.#version = undefined
      if (err === undefined && performance.now() - startedAt >= shortLivedMs) failures = 0
      else await sleep(this.#waitMs(err, failures++), signal)
    }
  }

  /** One watch, to its end. */
  async #follow(signal: AbortSignal): Promise<void> {
    const { client, key } = this.#options
    if (this.#version === undefined) {
      const secret = await getSecret(client, key, signal)
      this.#version = versionOf(secret)
      this.#learn(digestOf(secret))
    }
    const watching = new AbortController()
    this.#watching = watching
    const end = () => watching.abort(signal.reason)
    signal.addEventListener('abort', end, { once: true })
    try {
      const seconds = Math.round(watchSeconds * (0.8 + Math.random() * 0.4))
      const selection = { namespace: key.namespace, fieldSelector: `metadata.name=${key.name}` }
      const body = await client.watch(SecretKind, selection, this.#version, seconds, watching.signal)
      for await (const event of readWatch(body, seconds * 1000 + silenceMs, watching)) this.#take(event)
    } catch (err) {
      // It was ended on purpose: by `look`.
      if (this.#version !== undefined || !watching.signal.aborted) throw err
    } finally {
      signal.removeEventListener('abort', end)
      this.#watching = undefined
      watching.abort()
    }
  }

  #take({ type, object }: WatchEvent): void {
    this.#version = object.metadata.resourceVersion
    if (type !== 'BOOKMARK') this.#learn(digestOf(type === 'DELETED' ? undefined : object))
  }

  #learn(digest: string): void {
    this.#digest = digest
    this.#options.onDigest(digest)
  }

  #waitMs(err: unknown, failures: number): number {
    const spread = 0.75 + Math.random() / 2
    const cause = err instanceof ReconcileError && err.cause ? err.cause : err
    if (isStatus(cause, 403)) {
      this.#options.onDenied(messageOf(cause))
      return deniedMs * spread
    }
    const askedMs = cause instanceof ReconcileError ? (cause.retryAfterMs ?? 0) : 0
    return Math.max(askedMs, Math.min(minBackoffMs * 2 ** Math.min(failures, 20), maxBackoffMs) * spread)
  }
}

function versionOf(secret: Secret | undefined): string {
  return secret?.metadata.resourceVersion ?? ''
}
