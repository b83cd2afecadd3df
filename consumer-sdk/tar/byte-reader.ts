import { ArchiveError } from './archive-error.ts'

/** Reads a stream of chunks in pieces of the wanted size. */
export class ByteReader {
  readonly #chunks: AsyncIterator<Buffer>
  #rest: Buffer = Buffer.alloc(0)

  constructor(source: AsyncIterable<Buffer>) {
    this.#chunks = source[Symbol.asyncIterator]()
  }

  /** Between 1 and `max` bytes, whatever is at hand; undefined at the end of the stream. */
  async some(max: number): Promise<Buffer | undefined> {
    while (this.#rest.length === 0) {
      const { done, value } = await this.#chunks.next()
      if (done) return undefined
      this.#rest = value
    }
    const part = this.#rest.subarray(0, max)
    this.#rest = this.#rest.subarray(part.length)
    return part
  }

  /** Exactly `length` bytes; undefined where the stream has ended before the first one. Throws where it ends in between. */
  async read(length: number): Promise<Buffer | undefined> {
    const parts: Buffer[] = []
    for (let left = length; left > 0;) {
      const part = await this.some(left)
      if (!part && parts.length === 0) return undefined
      if (!part) throw cutShort(left)
      parts.push(part)
      left -= part.length
    }
    return parts.length === 1 ? parts[0] : Buffer.concat(parts)
  }
}

/** The stream ended although `missing` bytes were still due. */
export function cutShort(missing: number): ArchiveError {
  return new ArchiveError(`cut short, ${missing} bytes are missing`)
}
