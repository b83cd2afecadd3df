/**
 * One call for all who ask for the same thing at the same time: in the same turn of the event loop, or while an earlier call is under way, whose
 * answer may be of before their question. Those whose questions come in while an answer is given out get that one: it is one turn old.
 */
export class Batches<R> {
  readonly #call: (key: string) => Promise<R>
  readonly #waiting = new Map<string, Promise<R>>()
  readonly #running = new Map<string, Promise<unknown>>()
  readonly #answered = new Map<string, Promise<R>>()

  constructor(call: (key: string) => Promise<R>) {
    this.#call = call
  }

  run(key: string): Promise<R> {
    const known = this.#answered.get(key) ?? this.#waiting.get(key)
    if (known) return known
    const next = this.#next(key)
    this.#waiting.set(key, next)
    return next
  }

  async #next(key: string): Promise<R> {
    await this.#running.get(key)
    await new Promise((resolve) => setImmediate(resolve))
    this.#waiting.delete(key)
    const call = this.#call(key)
    const running = call.then(
      () => this.#answer(key, call),
      () => {}, // those who wait hear of it
    )
    this.#running.set(key, running)
    await running
    if (this.#running.get(key) === running) this.#running.delete(key)
    return call
  }

  #answer(key: string, call: Promise<R>): void {
    this.#answered.set(key, call)
    // The first of the two comes before the next turn, the second one after it; with them pending the loop does not wait for anything.
    setImmediate(() => setImmediate(() => this.#answered.delete(key)))
  }
}
