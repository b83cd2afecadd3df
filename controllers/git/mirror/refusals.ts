import { TooLargeError } from './fetch.ts'

const refusalMs = 600_000
const maxRefusals = 1000

/** What has turned out to be too large. Each attempt at it costs as many bytes as the limit allows, and so the next one waits for ten minutes. */
export class Refusals {
  readonly #refusals = new Map<string, { error: TooLargeError; untilMs: number }>()

  /** Throws the same error as the last time where that is not long ago. */
  async run<R>(key: string, work: () => Promise<R>): Promise<R> {
    const known = this.#refusals.get(key)
    if (known && known.untilMs > performance.now()) throw known.error
    try {
      return await work()
    } catch (error) {
      if (this.#refusals.size > maxRefusals) this.#refusals.clear()
      if (error instanceof TooLargeError) this.#refusals.set(key, { error, untilMs: performance.now() + refusalMs })
      throw error
    }
  }
}
