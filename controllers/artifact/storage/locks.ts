/** Runs work one after the other per key; distinct keys run side by side. */
export class KeyedMutex {
  readonly #tails = new Map<string, Promise<void>>()

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key)
    const { promise: done, resolve } = Promise.withResolvers<void>()
    this.#tails.set(key, done)
    try {
      await before
      return await work()
    } finally {
      resolve()
      if (this.#tails.get(key) === done) this.#tails.delete(key)
    }
  }
}

/** Runs at most `limit` pieces of work at once; the others wait in the order they came. */
export class Semaphore {
  #free: number
  readonly #waiting: (() => void)[] = []

  constructor(limit: number) {
    this.#free = limit
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--
    else await new Promise<void>((resolve) => this.#waiting.push(resolve))
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next) next()
      else this.#free++
    }
  }
}
