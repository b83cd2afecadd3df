import type { WorkQueue } from './workqueue.ts'

export interface WorkersOptions {
  /** How many passes run at a time, those not counted that take long. */
  concurrent: number
  /** Works on one key. Never rejects. */
  pass(key: string): Promise<void>
  /** After how many ms a pass counts as a long one. Defaults to 5 s. */
  longMs?: number
  /** The most long passes at a time; beyond that they keep others waiting. Defaults to 200. */
  maxLong?: number
}

/** A namespace may have as many long passes at a time as there are workers, and at least these. */
export const minLongPerNamespace = 20

/**
 * Works on the keys of a queue. A worker whose pass takes long, because the other side is slow or wants to be, is replaced by another one until it
 * has ended: with a timeout of a day, two objects would otherwise keep all others waiting for a day.
 */
export class Workers {
  readonly #queue: WorkQueue
  readonly #options: Required<WorkersOptions>
  #long = 0

  constructor(queue: WorkQueue, options: WorkersOptions) {
    this.#queue = queue
    this.#options = { longMs: 5_000, maxLong: 200, ...options }
  }

  /** Resolves once the queue is closed and all passes under way have ended. */
  async run(): Promise<void> {
    await Promise.all(Array.from({ length: this.#options.concurrent }, () => this.#work()))
  }

  async #work(): Promise<void> {
    const { pass, longMs, maxLong } = this.#options
    for (let key = await this.#queue.take(); key !== undefined; key = await this.#queue.take()) {
      const taken = key
      let replacement: Promise<void> | undefined
      const timer = setTimeout(() => {
        if (this.#long >= maxLong) return
        this.#long++
        this.#queue.markLong(taken)
        replacement = this.#work()
      }, longMs)
      await pass(taken)
      clearTimeout(timer)
      this.#queue.done(taken)
      if (!replacement) continue
      this.#long--
      return replacement // one of the two has to go
    }
  }
}
