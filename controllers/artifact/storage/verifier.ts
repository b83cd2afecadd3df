import { constants, type BigIntStats } from 'node:fs'
import { lstat, open, type FileHandle } from 'node:fs/promises'
import { makeHasher, parseDigest, type DigestAlgorithm } from '../digest.ts'
import { codeOf } from './durable.ts'
import { Semaphore } from './locks.ts'

/** What became of a stored file. */
export type Integrity = 'intact' | 'missing' | 'damaged'

/** A file that is open and whose bytes have been found to be right. To be closed by the caller. */
export interface VerifiedFile {
  handle: FileHandle
  stat: BigIntStats
}

/** What was hashed, when, and what came out. Times are of the monotonic clock. */
interface HashRecord {
  size: bigint
  mtimeNs: bigint
  ctimeNs: bigint
  digest: string
  hashedMs: number
  firstSeenMs: number
  /** No write since can have left the same times behind. */
  settled: boolean
}

type HashFile = (handle: FileHandle, sizeBytes: number, algorithm: DigestAlgorithm) => Promise<string>

/** After that a file is hashed again although nothing tells of a change: disks rot. */
const trustMs = 10 * 60 * 1000
/** Two writes within this time may leave the same times behind, on the coarsest file systems. */
const coarseTimeMs = 2000
const maxRecords = 65_536
const readBytes = 512 * 1024
const concurrentHashes = 4
/** How often a file is hashed that changes while it is read. */
const attempts = 3

/** Tells whether files have the digest they should have, hashing each inode only when its size or times tell of a change, or now and then. */
export class Verifier {
  readonly #records = new Map<string, HashRecord>()
  readonly #running = new Map<string, Promise<string | undefined>>()
  readonly #renaming = new Map<string, Promise<void>>()
  readonly #hashing = new Semaphore(concurrentHashes)
  readonly #hashFile: HashFile

  /** `hash` gives the digest of the first bytes of an open file. */
  constructor(hash: HashFile = hashFile) {
    this.#hashFile = hash
  }

  /** Looks at a file without opening it where its record allows. `maxAgeMs` is how old a hash may be, 10 minutes unless said otherwise. */
  async check(file: string, digest: string, maxAgeMs: number = trustMs): Promise<Integrity> {
    const stat = await lstat(file, { bigint: true }).catch(asIntegrity)
    if (typeof stat === 'string') return stat
    const known = this.#known(stat, digest, maxAgeMs)
    if (known !== undefined) return known === digest ? 'intact' : 'damaged'
    const opened = await this.open(file, digest, maxAgeMs)
    if (typeof opened === 'string') return opened
    await opened.handle.close()
    return 'intact'
  }

  /** Opens a file and makes sure of its bytes; links, folders and the like count as damaged. */
  async open(file: string, digest: string, maxAgeMs: number = trustMs): Promise<VerifiedFile | 'missing' | 'damaged'> {
    // O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
    const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK
    const handle = await open(file, flags).catch(asIntegrity)
    if (typeof handle === 'string') return handle
    let verified: VerifiedFile | undefined
    try {
      const stat = await this.#verify(handle, digest, maxAgeMs)
      if (stat) verified = { handle, stat }
      return verified ?? 'damaged'
    } catch (err) {
      return asIntegrity(err)
    } finally {
      if (!verified) await handle.close()
    }
  }

  /** Records the digest of a file whose bytes were hashed as they were written. */
  trust(stat: BigIntStats, digest: string): void {
    const now = performance.now()
    this.#remember(stat, { digest, hashedMs: now, firstSeenMs: now, settled: false })
  }

  /**
   * Runs work that gives the file `from` a name or takes one, and after which it is at `to`. That changes a time of the inode but not its content: its record is
   * taken over, and who asks for one of its names meanwhile waits for that, rather than hash it once more.
   */
  async renaming(from: string, to: string, digest: string, work: () => Promise<void>): Promise<void> {
    const before = await lstat(from, { bigint: true })
    const key = keyOf(before, digest)
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#renaming.set(key, promise)
    try {
      await work()
      const after = await lstat(to, { bigint: true })
      const record = this.#records.get(key)
      if (record && sameContent(record, after) && key === keyOf(after, digest)) this.#remember(after, record)
    } finally {
      if (this.#renaming.get(key) === promise) this.#renaming.delete(key)
      resolve()
    }
  }

  /** The bytes' stat if they are right; hashes them if need be. */
  async #verify(handle: FileHandle, digest: string, maxAgeMs: number): Promise<BigIntStats | undefined> {
    let lookedTwice = false
    for (let attempt = 0; attempt < attempts;) {
      const stat = await handle.stat({ bigint: true })
      if (!stat.isFile()) return undefined
      const known = this.#known(stat, digest, maxAgeMs)
      if (known !== undefined) return known === digest ? stat : undefined
      const renaming = this.#renaming.get(keyOf(stat, digest))
      await renaming
      if (renaming) continue
      // What was seen may be of a moment within a renaming that has just ended.
      if (!lookedTwice) {
        lookedTwice = true
        continue
      }
      attempt++
      const actual = await this.#hashOnce(handle, stat, digest)
      if (actual !== undefined) return actual === digest ? stat : undefined
    }
    return undefined
  }

  /** The recorded digest of a file that is as it was then. */
  #known(stat: BigIntStats, digest: string, maxAgeMs: number): string | undefined {
    const record = this.#records.get(keyOf(stat, digest))
    if (!record || !stat.isFile() || !sameContent(record, stat) || record.ctimeNs !== stat.ctimeNs) return undefined
    const now = performance.now()
    const trusted = record.settled || now - record.firstSeenMs < coarseTimeMs
    return trusted && now - record.hashedMs < maxAgeMs ? record.digest : undefined
  }

  /** The digest; undefined if the file changed meanwhile. Whoever asks for the same state of the same file waits for one hash. */
  #hashOnce(handle: FileHandle, stat: BigIntStats, digest: string): Promise<string | undefined> {
    const key = `${keyOf(stat, digest)}:${stat.size}:${stat.mtimeNs}:${stat.ctimeNs}`
    const running = this.#running.get(key)
    if (running) return running
    const hash = this.#hashing.run(() => this.#hash(handle, stat, digest)).finally(() => this.#running.delete(key))
    this.#running.set(key, hash)
    return hash
  }

  async #hash(handle: FileHandle, stat: BigIntStats, digest: string): Promise<string | undefined> {
    const startedMs = performance.now()
    const contentAgeMs = Date.now() - Number(stat.mtimeNs / 1_000_000n)
    const actual = await this.#hashFile(handle, Number(stat.size), algorithmOf(digest))
    const after = await handle.stat({ bigint: true })
    if (!sameContent(stat, after)) return undefined
    const before = this.#records.get(keyOf(stat, digest))
    const firstSeenMs = before && sameContent(before, after) ? before.firstSeenMs : startedMs
    const settled = contentAgeMs >= coarseTimeMs || startedMs - firstSeenMs >= coarseTimeMs
    this.#remember(after, { digest: actual, hashedMs: startedMs, firstSeenMs, settled })
    return actual
  }

  #remember(stat: BigIntStats, found: Pick<HashRecord, 'digest' | 'hashedMs' | 'firstSeenMs' | 'settled'>): void {
    const key = keyOf(stat, found.digest)
    const { digest, hashedMs, firstSeenMs, settled } = found
    const { size, mtimeNs, ctimeNs } = stat
    this.#records.delete(key)
    this.#records.set(key, { size, mtimeNs, ctimeNs, digest, hashedMs, firstSeenMs, settled })
    const [oldest] = this.#records.keys()
    if (this.#records.size > maxRecords && oldest !== undefined) this.#records.delete(oldest)
  }
}

type Content = Pick<BigIntStats, 'size' | 'mtimeNs'>

/** Whether two looks at one file saw the same content: its size and the time of its last write are the same. */
export function sameContent(a: Content, b: Content): boolean {
  return a.size === b.size && a.mtimeNs === b.mtimeNs
}

/** The digest of the first `sizeBytes` bytes of an open file. */
export async function hashFile(handle: FileHandle, sizeBytes: number, algorithm: DigestAlgorithm): Promise<string> {
  const hasher = await makeHasher(algorithm)
  const buffer = Buffer.allocUnsafe(Math.max(1, Math.min(readBytes, sizeBytes)))
  for (let at = 0; at < sizeBytes;) {
    const { bytesRead } = await handle.read(buffer, 0, Math.min(buffer.length, sizeBytes - at), at)
    if (bytesRead === 0) break // it has just been cut: the digest will tell
    hasher.update(buffer.subarray(0, bytesRead))
    at += bytesRead
  }
  return hasher.digest()
}

function algorithmOf(digest: string): DigestAlgorithm {
  return parseDigest(digest).algorithm
}

function keyOf(stat: BigIntStats, digest: string): string {
  return `${stat.dev}:${stat.ino}:${algorithmOf(digest)}`
}

/** What a failing call says about the file; a lack of descriptors or memory says nothing and is thrown. */
function asIntegrity(err: unknown): 'missing' | 'damaged' {
  const code = codeOf(err)
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'missing'
  if (['ELOOP', 'EISDIR', 'EACCES', 'EPERM', 'EIO', 'ENXIO', 'EOVERFLOW', 'EUCLEAN'].includes(code)) return 'damaged'
  throw err
}
