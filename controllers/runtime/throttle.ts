/**
 * Lets so many pieces of work run at a time, the others in the order in which they came, so that memory does not grow with the number of those who want
 * something. Work that takes long no longer counts: who is slow on purpose keeps nobody waiting.
 */
export class Throttle {
  readonly #limit: number
  readonly #longMs: number
  #counted = 0
  readonly #waiting: Set<() => void> = new Set()

  constructor(limit: number, longMs: number = 5_000) {
    this.#limit = limit
    this.#longMs = longMs
  }

  /** Throws the signal's reason where that aborts before the work has begun, else what the work throws. */
  async run<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    await this.#turn(signal)
    let counts = true
    const stopCounting = () => {
      if (!counts) return
      counts = false
      this.#counted--
      this.#admit()
    }
    const timer = setTimeout(stopCounting, this.#longMs)
    try {
      return await work()
    } finally {
      clearTimeout(timer)
      stopCounting()
    }
  }

  async #turn(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted()
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const giveUp = () => {
      if (this.#waiting.delete(resolve)) reject(signal?.reason)
    }
    this.#waiting.add(resolve)
    this.#admit()
    signal?.addEventListener('abort', giveUp, { once: true })
    try {
      await promise
    } finally {
      signal?.removeEventListener('abort', giveUp)
    }
  }

  #admit(): void {
    for (const start of this.#waiting) {
      if (this.#counted >= this.#limit) return
      this.#waiting.delete(start)
      this.#counted++
      start()
    }
  }
}
