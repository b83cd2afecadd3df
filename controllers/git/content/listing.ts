import { isUtf8 } from 'node:buffer'
import type { Readable } from 'node:stream'
import type { Entry } from '../../artifact/entry.ts'
import { ReconcileError } from '../../runtime/errors.ts'
import { startGit } from '../git.ts'
import type { BareRepository } from '../mirror/repository.ts'

/** Reads a blob by its id. */
export type ReadBlob = (oid: string) => Promise<Buffer | Readable>

/** A regular file of a commit. There may be half a million: a class, so that none of them needs a function of its own. */
class TreeFile implements Entry {
  readonly path: string
  readonly mode: number
  readonly sizeBytes: number
  readonly #oid: string
  readonly #read: ReadBlob

  constructor(path: string, mode: number, sizeBytes: number, oid: string, read: ReadBlob) {
    this.path = path
    this.mode = mode
    this.sizeBytes = sizeBytes
    this.#oid = oid
    this.#read = read
  }

  open(): Promise<Buffer | Readable> {
    return this.#read(this.#oid)
  }
}

/** All files of a commit, and how many entries are not files. */
export interface Listing {
  files: Entry[]
  symlinks: number
  submodules: number
}

export interface ListingLimits {
  /** Entries, before anything is ignored: no more than an artifact may have (--artifact-max-entries). */
  maxFiles: number
  /** Bytes of all paths together. */
  maxPathBytes: number
}

export const defaultListingLimits: ListingLimits = { maxFiles: 500_000, maxPathBytes: 64 * 1024 * 1024 }

/**
 * Lists a commit; its files will be read by `read`. Throws ReconcileError `TooManyFiles` as soon as a limit is passed, so that a few small trees that unfold to billions of files cost
 * no more than that; a GitError where the repository cannot be read.
 */
export async function listTree(
  repository: BareRepository,
  sha: string,
  read: ReadBlob,
  signal: AbortSignal,
  limits: ListingLimits = defaultListingLimits,
): Promise<Listing> {
  const args = ['--git-dir', repository.dir, 'ls-tree', '-r', '-z', '--long', '--full-tree', '--end-of-options', sha]
  const git = startGit(args, { env: repository.env, signal })
  git.stdin.end()
  const listing: Listing = { files: [], symlinks: 0, submodules: 0 }
  let entries = 0
  let pathBytes = 0
  try {
    for await (const record of records(git.stdout as AsyncIterable<Buffer>, limits.maxPathBytes)) {
      pathBytes += addRecord(listing, record, read)
      if (++entries > limits.maxFiles) throw tooMany(sha, `${limits.maxFiles} files (--artifact-max-entries)`)
      if (pathBytes > limits.maxPathBytes) throw tooMany(sha, `${limits.maxPathBytes} bytes of paths`)
    }
  } catch (err) {
    git.kill()
    await git.ended.catch(() => undefined) // it was killed
    throw err
  }
  await git.ended
  return listing
}

function tooMany(sha: string, limit: string): ReconcileError {
  return new ReconcileError('TooManyFiles', `commit '${sha}' has more than ${limit}`)
}

async function* records(chunks: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Buffer, void, undefined> {
  let held: Buffer[] = []
  let heldBytes = 0
  for await (const chunk of chunks) {
    let start = 0
    for (let end = chunk.indexOf(0); end >= 0; end = chunk.indexOf(0, start)) {
      const part = chunk.subarray(start, end)
      yield held.length > 0 ? Buffer.concat([...held, part]) : part
      held = []
      heldBytes = 0
      start = end + 1
    }
    if (start < chunk.length) held.push(Buffer.from(chunk.subarray(start)))
    heldBytes += chunk.length - start
    if (heldBytes > maxBytes) throw new ReconcileError('TooManyFiles', `a path is longer than ${maxBytes} bytes`)
  }
}

/** `<mode> <type> <oid> <size>TAB<path>`; returns the bytes of the path. */
function addRecord(listing: Listing, record: Buffer, read: ReadBlob): number {
  const tab = record.indexOf(0x09)
  const [mode = '', , oid = '', size = ''] = record.toString('latin1', 0, tab).split(/ +/)
  if (mode === '120000') listing.symlinks++
  else if (mode === '160000') listing.submodules++
  else {
    const bits = mode === '100755' ? 0o755 : 0o644
    listing.files.push(new TreeFile(decodePath(record.subarray(tab + 1)), bits, Number(size), oid, read))
  }
  return record.length - tab - 1
}

/**
 * Git's paths are bytes. Those that are no UTF-8 become lone surrogates, which no file name in UTF-8 can be: whoever keeps such a
 * path refuses it, and two different ones never look alike.
 */
function decodePath(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString()
  return Array.from(bytes, (byte) => String.fromCharCode(byte < 0x80 ? byte : 0xdc00 + byte)).join('')
}
