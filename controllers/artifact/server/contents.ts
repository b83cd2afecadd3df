import { makeHasher, parseDigest } from '../digest.ts'
import type { OpenedArtifact, Storage } from '../storage/storage.ts'
import type { StoredArtifact } from '../stored.ts'
import { Batches } from './batches.ts'
import { ArtifactMemory, type Loan } from './memory.ts'

/** What can be read of a stored artifact: all its bytes, or a file that is open. To be closed once it is sent. */
export type Content = MemoryContent | FileContent

/** Bytes that have the artifact's digest. */
export interface MemoryContent {
  artifact: StoredArtifact
  bytes: Buffer
  close: () => void
}

/** An open file whose bytes had the artifact's digest a moment ago. */
export interface FileContent {
  artifact: StoredArtifact
  opened: OpenedArtifact
  close: () => Promise<void>
}

type Found = StoredArtifact | 'missing' | 'damaged' | undefined

/** What the storage must be able to do to be served. */
export type ServedStorage = Pick<Storage, 'look' | 'open'>

/** Read and hashed in one go, so that other work gets its turn every few ms, also with the slowest digest. */
const readBytes = 256 * 1024

/** Opens stored artifacts to be sent, from memory where they fit. Nothing is given away before the storage has had a look at the file. */
export class Contents {
  readonly #storage: ServedStorage
  readonly #memory: ArtifactMemory
  /** A look costs more than all else that a small answer takes. */
  readonly #looks: Batches<Found>

  constructor(storage: ServedStorage, memoryBytes: number) {
    this.#storage = storage
    this.#looks = new Batches((path) => storage.look(path))
    this.#memory = new ArtifactMemory(memoryBytes)
  }

  /** What is stored under a path if it is intact and its bytes are in memory already. */
  async inMemory(path: string): Promise<MemoryContent | undefined> {
    const artifact = await this.#looks.run(path)
    if (typeof artifact !== 'object') return undefined
    const loan = this.#memory.lend(artifact.digest)
    return loan && contentOf(artifact, loan)
  }

  /** Undefined where no log knows the path. */
  async open(path: string): Promise<Content | 'missing' | 'damaged' | undefined> {
    const artifact = await this.#looks.run(path)
    if (typeof artifact !== 'object') return artifact
    const { digest, size } = artifact
    const loan = this.#memory.lend(digest) ?? (await this.#memory.load(digest, size, () => this.#read(artifact)))
    if (loan) return contentOf(artifact, loan)
    const opened = await this.#storage.open(path)
    if (typeof opened !== 'object') return opened
    return { artifact: opened.artifact, opened, close: () => opened.handle.close() }
  }

  /** The bytes of a file, hashed as they are in memory now. Undefined where the file is not that artifact any more. */
  async #read({ path, digest, size }: StoredArtifact): Promise<Buffer | undefined> {
    const opened = await this.#storage.open(path)
    if (typeof opened !== 'object') return undefined
    try {
      if (opened.stat.size !== BigInt(size)) return undefined
      const hasher = await makeHasher(parseDigest(digest).algorithm)
      // Of its own, not a piece of a pool that would stay as long as this piece.
      const bytes = Buffer.allocUnsafeSlow(size)
      for (let at = 0; at < bytes.length;) {
        const { bytesRead } = await opened.handle.read(bytes, at, Math.min(readBytes, bytes.length - at), at)
        if (bytesRead === 0) return undefined
        hasher.update(bytes.subarray(at, at + bytesRead))
        at += bytesRead
      }
      return hasher.digest() === digest ? bytes : undefined
    } finally {
      await opened.handle.close()
    }
  }
}

function contentOf(artifact: StoredArtifact, loan: Loan): MemoryContent {
  return { artifact, bytes: loan.bytes, close: loan.release }
}
