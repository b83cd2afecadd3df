/** Which commits somebody is reading right now. */
export class Holds {
  readonly #counts = new Map<string, number>()

  get any(): boolean {
    return this.#counts.size > 0
  }

  has(sha: string): boolean {
    return this.#counts.has(sha)
  }

  /** Returns what ends the hold; a second call of it does nothing. */
  add(sha: string): () => void {
    this.#counts.set(sha, (this.#counts.get(sha) ?? 0) + 1)
    let held = true
    return () => {
      if (!held) return
      held = false
      const others = this.#counts.get(sha)! - 1
      if (others > 0) this.#counts.set(sha, others)
      else this.#counts.delete(sha)
    }
  }
}
