import type { Client } from './client.ts'
import type { ObjectKey } from './kind.ts'
import type { Logger } from './log.ts'
import { secretWatches } from './metrics.ts'
import { decodeSecret, getSecret, type Secret, type SecretData } from './secret.ts'
import { digestOf, SecretWatch } from './secret-watch.ts'

/** Whoever wants to hear of changes to what it has read. Compared by identity. */
export interface Reader {
  /** Something that was read has changed since. May be called more than once for one change. */
  wake(): void
}

export interface SecretWatchesOptions {
  client: Client
  log: Logger
  /** The most Secrets that are watched at a time; each takes a connection. Others are read afresh at each interval. Defaults to 1,000. */
  maxWatches?: number
}

interface Watched {
  watch: SecretWatch
  /** The digest of what each reader has read. */
  seen: Map<Reader, string>
  end: AbortController
  ended: Promise<void>
}

/** Reads Secrets, and watches by name those that somebody has read, once for all readers, until nobody refers to them any more. */
export class SecretWatches {
  readonly #options: SecretWatchesOptions
  readonly #watched: Map<string, Watched> = new Map()
  #toldDenied = false
  #toldFull = false

  constructor(options: SecretWatchesOptions) {
    this.#options = options
  }

  /** How many Secrets are being watched. */
  get size(): number {
    return this.#watched.size
  }

  /** Reads a Secret afresh; `reader` hears of changes until it lets go. Throws ReconcileError `AuthenticationFailed`, also then it will hear. */
  async read(key: ObjectKey, reader: Reader, signal: AbortSignal): Promise<SecretData> {
    const secret = await getSecret(this.#options.client, key, signal)
    signal.throwIfAborted()
    this.#note(key, reader, secret)
    return decodeSecret(key, secret)
  }

  /** `reader` refers to this Secret no more. */
  release(key: ObjectKey, reader: Reader): void {
    const watched = this.#watched.get(idOf(key))
    watched?.seen.delete(reader)
    if (watched?.seen.size === 0) this.#end(idOf(key), watched)
  }

  /** Ends all watches. */
  async close(): Promise<void> {
    const ended = [...this.#watched].map(([id, watched]) => {
      this.#end(id, watched)
      return watched.ended
    })
    await Promise.all(ended)
  }

  #note(key: ObjectKey, reader: Reader, secret: Secret | undefined): void {
    const watched = this.#watched.get(idOf(key)) ?? this.#start(key, secret)
    if (!watched) return
    const digest = digestOf(secret)
    watched.seen.set(reader, digest)
    // Which of the two is newer cannot be told; a look can.
    if (digest !== watched.watch.digest) watched.watch.look()
  }

  #start(key: ObjectKey, secret: Secret | undefined): Watched | undefined {
    const { client, log, maxWatches = 1_000 } = this.#options
    if (this.#watched.size >= maxWatches) {
      if (!this.#toldFull)
        log.info({ maxWatches }, 'no more Secrets are watched: changes of others are noticed at the interval')
      this.#toldFull = true
      return undefined
    }
    const seen: Watched['seen'] = new Map()
    const onDigest = (digest: string) => {
      for (const [reader, read] of seen) if (read !== digest) reader.wake()
    }
    const watch = new SecretWatch({ client, key, onDigest, onDenied: (why) => this.#tellDenied(why) }, secret)
    const end = new AbortController()
    const watched: Watched = { watch, seen, end, ended: watch.run(end.signal) }
    this.#watched.set(idOf(key), watched)
    secretWatches.set(this.#watched.size)
    return watched
  }

  #end(id: string, { end }: Watched): void {
    end.abort(new Error('nobody refers to the Secret any more'))
    this.#watched.delete(id)
    secretWatches.set(this.#watched.size)
  }

  /** Said once: it is a choice of whoever gives rights, and may concern thousands of Secrets. */
  #tellDenied(why: string): void {
    if (!this.#toldDenied)
      this.#options.log.info({ error: why }, 'Secrets are not watched: changes are noticed at the interval')
    this.#toldDenied = true
  }
}

function idOf({ namespace, name }: ObjectKey): string {
  return `${namespace}/${name}`
}
