/** Runs pieces of work side by side, at most `limit` at once. The first failure is thrown at the next chance, and nothing is started after it. */
export class Parallel {
  readonly #limit: number
  readonly #running: Set<Promise<void>> = new Set()
  readonly #failures: unknown[] = []

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Starts `work`, as soon as there is room. */
  async start(work: () => Promise<void>): Promise<void> {
    while (this.#running.size >= this.#limit) await Promise.race(this.#running)
    this.#check()
    const running: Promise<void> = work()
      .catch((err: unknown) => void this.#failures.push(err))
      .finally(() => this.#running.delete(running))
    this.#running.add(running)
  }

  /** Resolves when everything has ended well. */
  async finish(): Promise<void> {
    await this.settle()
    this.#check()
  }

  /** Resolves when everything has ended, well or not. */
  async settle(): Promise<void> {
    await Promise.all(this.#running)
  }

  #check(): void {
    if (this.#failures.length > 0) throw this.#failures[0]
  }
}
