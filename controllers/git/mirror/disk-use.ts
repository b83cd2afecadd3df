import { mirrorBytes, mirrorCount } from '../metrics.ts'

/** How many bytes each of the mirrors takes, as far as this process has looked; the metrics say the same. */
export class DiskUse {
  readonly #bytes = new Map<string, number>()
  readonly #maxBytes: number
  #total = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  get isTooMuch(): boolean {
    return this.#total > this.#maxBytes
  }

  /** The mirrors that take anything at all. */
  get names(): string[] {
    return Array.from(this.#bytes.keys())
  }

  /** 0 for a mirror that is gone. */
  note(name: string, bytes: number): void {
    this.#total += bytes - (this.#bytes.get(name) ?? 0)
    if (bytes > 0) this.#bytes.set(name, bytes)
    else this.#bytes.delete(name)
    mirrorCount.set(this.#bytes.size)
    mirrorBytes.set(this.#total)
  }
}
