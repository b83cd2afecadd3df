import { artifactMemoryBytes, artifactMemoryLookups } from '../../runtime/metrics.ts'

/** Bytes that stay as they are until they are given back. */
export interface Loan {
  bytes: Buffer
  /** To be called once. */
  release: () => void
}

interface Entry {
  bytes: Buffer
  loans: number
}

/** What an entry takes beside its bytes, roughly. */
const entryBytes = 1024
/** No file takes more than this part of the memory, so that one download does not push out everything else. */
const largestPart = 1 / 4

const hits = artifactMemoryLookups.labels('hit')
const misses = artifactMemoryLookups.labels('miss')
const refusals = artifactMemoryLookups.labels('none')

/**
 * The artifacts that were asked for last, by digest. What is lent stays: bytes that slow clients still read count like all others, and whoever
 * finds no room must do without.
 */
export class ArtifactMemory {
  readonly #maxBytes: number
  /** The one not used for the longest time comes first. */
  readonly #entries = new Map<string, Entry>()
  readonly #loading = new Map<string, Promise<void>>()
  #usedBytes = 0

  /** `maxBytes` is for all of them together; 0 for none. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /** Of all that is kept or being read. */
  get usedBytes(): number {
    return this.#usedBytes
  }

  /** The bytes of that digest if they are there. */
  lend(digest: string): Loan | undefined {
    const entry = this.#entries.get(digest)
    if (!entry) return undefined
    hits.inc()
    return this.#lend(digest, entry)
  }

  /**
   * The bytes of that digest, read first if they are not there: once, for all who want them at that time. `read` makes sure that they are right,
   * and gives nothing where they are not. Undefined then, and where there is no room.
   */
  async load(digest: string, bytes: number, read: () => Promise<Buffer | undefined>): Promise<Loan | undefined> {
    if (!this.#loading.has(digest)) {
      if (!this.#reserve(bytes)) {
        refusals.inc()
        return undefined
      }
      misses.inc()
      const loading = this.#load(digest, bytes, read).finally(() => this.#loading.delete(digest))
      this.#loading.set(digest, loading)
    }
    await this.#loading.get(digest)
    const entry = this.#entries.get(digest)
    return entry && this.#lend(digest, entry)
  }

  async #load(digest: string, bytes: number, read: () => Promise<Buffer | undefined>): Promise<void> {
    let kept = false
    try {
      const content = await read()
      // Reserved were the bytes that the record names, and what has this digest has this many.
      if (content?.length !== bytes) return
      this.#entries.set(digest, { bytes: content, loans: 0 })
      kept = true
    } finally {
      if (!kept) this.#use(-bytes - entryBytes)
    }
  }

  #lend(digest: string, entry: Entry): Loan {
    this.#entries.delete(digest)
    this.#entries.set(digest, entry)
    entry.loans++
    return { bytes: entry.bytes, release: () => void entry.loans-- }
  }

  /** Makes room by dropping what nobody reads at the moment; false where that is not enough. */
  #reserve(bytes: number): boolean {
    const wanted = bytes + entryBytes
    if (bytes > this.#maxBytes * largestPart) return false
    for (const [digest, entry] of this.#entries) {
      if (this.#usedBytes + wanted <= this.#maxBytes) break
      if (entry.loans > 0) continue
      this.#entries.delete(digest)
      this.#use(-entry.bytes.length - entryBytes)
    }
    if (this.#usedBytes + wanted > this.#maxBytes) return false
    this.#use(wanted)
    return true
  }

  #use(bytes: number): void {
    this.#usedBytes += bytes
    artifactMemoryBytes.set(this.#usedBytes)
  }
}
