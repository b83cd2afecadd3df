import { SharedCalls } from '../../runtime/shared-calls.ts'

const maxObjectBytes = 64 * 1024
const maxBytes = 16 * 1024 * 1024

/**
 * Small objects that have been read and checked, so that a hundred users of one commit do not start a hundred processes. Those used last stay,
 * 16 MiB of them; larger ones than 64 KiB are not kept.
 */
export class ObjectMemory {
  readonly #objects = new Map<string, Buffer>()
  readonly #reads = new SharedCalls<Buffer>()
  #bytes = 0

  /** `key` must tell apart whose credentials gave the object. */
  get(key: string): Buffer | undefined {
    const content = this.#objects.get(key)
    if (!content) return undefined
    this.#objects.delete(key) // and now the youngest again
    this.#objects.set(key, content)
    return content
  }

  /** What is in memory, else what `work` reads; those who want the same at the same time share one reading. */
  async read(key: string, signal: AbortSignal, work: (signal: AbortSignal) => Promise<Buffer>): Promise<Buffer> {
    return this.get(key) ?? (await this.#reads.run(key, signal, async (shared) => this.#keep(key, await work(shared))))
  }

  #keep(key: string, content: Buffer): Buffer {
    if (content.length > maxObjectBytes || this.#objects.has(key)) return content
    // In memory of its own: a piece of Node's pool would keep the other 64 KiB of it too.
    const kept = Buffer.allocUnsafeSlow(content.length)
    content.copy(kept)
    this.#objects.set(key, kept)
    this.#bytes += content.length
    for (const [oldest, { length }] of this.#objects) {
      if (this.#bytes <= maxBytes) break
      this.#objects.delete(oldest)
      this.#bytes -= length
    }
    return kept
  }
}
