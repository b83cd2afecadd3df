import { isUtf8 } from 'node:buffer'
import type { Readable } from 'node:stream'
import type { Entry } from '../../artifact/entry.ts'
import { ReconcileError } from '../../runtime/errors.ts'
import { startGit } from '../git.ts'
import type { BareRepository } from '../mirror/repository.ts'

/** Where the files of one commit come from, and where they go. */
export interface Origin {
  /** Tells apart whose credentials gave access. */
  key: string
  /** Before each path: '' or a folder with `/` at its end. */
  prefix: string
  /** Reads a blob by its id. */
  read: (oid: string) => Promise<Buffer | Readable>
}

/** A file or symbolic link of a commit. There may be half a million: a class, so that none of them needs a function of its own. */
class TreeEntry implements Entry {
  readonly path: string
  readonly type: 'file' | 'symlink'
  readonly mode: number
  readonly sizeBytes: number
  readonly #oid: string
  readonly #origin: Origin

  constructor(path: string, mode: string, sizeBytes: number, oid: string, origin: Origin) {
    this.path = path
    this.type = mode === '120000' ? 'symlink' : 'file'
    this.mode = mode === '100755' ? 0o755 : 0o644
    this.sizeBytes = sizeBytes
    this.#oid = oid
    this.#origin = origin
  }

  get contentId(): string {
    return `${this.#origin.key}:${this.#oid}`
  }

  open(): Promise<Buffer | Readable> {
    return this.#origin.read(this.#oid)
  }
}

/** A submodule's commit, by the path of its folder. */
export interface Gitlink {
  path: string
  sha: string
}

/** All entries of a commit. */
export interface Listing {
  entries: Entry[]
  gitlinks: Gitlink[]
}

export interface ListingLimits {
  /** Entries, before anything is ignored: no more than an artifact may have (--artifact-max-entries). */
  maxFiles: number
  /** Bytes of all paths together. */
  maxPathBytes: number
}

export const defaultListingLimits: ListingLimits = { maxFiles: 500_000, maxPathBytes: 64 * 1024 * 1024 }

/** What is left of the limits: those of a commit and of all its submodules together. */
export class ListingBudget {
  readonly limits: ListingLimits
  #files = 0
  #pathBytes = 0

  constructor(limits: ListingLimits = defaultListingLimits) {
    this.limits = limits
  }

  /** Throws ReconcileError `TooManyFiles` as soon as a limit is passed. */
  spend(pathBytes: number, sha: string): void {
    this.#pathBytes += pathBytes
    const { maxFiles, maxPathBytes } = this.limits
    if (++this.#files > maxFiles) throw tooMany(sha, `${maxFiles} files (--artifact-max-entries)`)
    if (this.#pathBytes > maxPathBytes) throw tooMany(sha, `${maxPathBytes} bytes of paths`)
  }
}

export interface ListingRequest {
  repository: BareRepository
  sha: string
  origin: Origin
  budget: ListingBudget
  /** Files and folders, none of them within another; all without. */
  paths?: readonly string[] | undefined
  /** True: submodules alone, for which no file has to be there. */
  gitlinksOnly?: boolean
  signal: AbortSignal
}

/**
 * Lists a commit. Throws ReconcileError `TooManyFiles` as soon as a limit is passed, so that a few small trees that unfold to billions of files
 * cost no more than that; a GitError where the repository cannot be read.
 */
export async function listTree(request: ListingRequest): Promise<Listing> {
  const { repository, sha, origin, budget, paths, gitlinksOnly = false, signal } = request
  const shape = gitlinksOnly ? [] : ['--long']
  const args = ['--git-dir', repository.dir, 'ls-tree', '-r', '-z', ...shape, '--full-tree', '--end-of-options', sha]
  // The paths are no patterns, whatever is in them.
  const env = { ...repository.env, GIT_LITERAL_PATHSPECS: '1' }
  const git = startGit(paths ? [...args, '--', ...paths] : args, { env, signal })
  git.stdin.end()
  const listing: Listing = { entries: [], gitlinks: [] }
  const prefixBytes = Buffer.byteLength(origin.prefix)
  try {
    const records = new Records(budget.limits.maxPathBytes)
    for await (const chunk of git.stdout as AsyncIterable<Buffer>) {
      for (const record of records.of(chunk)) {
        budget.spend(prefixBytes + addRecord(listing, record, origin, gitlinksOnly), sha)
      }
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

/** Cuts what arrives in pieces at each NUL. */
class Records {
  readonly #maxBytes: number
  #held: Buffer[] = []
  #heldBytes = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /** The records that end in this piece. */
  *of(chunk: Buffer): Generator<Buffer, void, undefined> {
    let start = 0
    for (let end = chunk.indexOf(0); end >= 0; end = chunk.indexOf(0, start)) {
      const part = chunk.subarray(start, end)
      yield this.#held.length > 0 ? Buffer.concat([...this.#held, part]) : part
      this.#held = []
      this.#heldBytes = 0
      start = end + 1
    }
    if (start < chunk.length) this.#held.push(Buffer.from(chunk.subarray(start)))
    this.#heldBytes += chunk.length - start
    if (this.#heldBytes > this.#maxBytes) {
      throw new ReconcileError('TooManyFiles', `a path is longer than ${this.#maxBytes} bytes`)
    }
  }
}

/** `<mode> <type> <oid>[ <size>]TAB<path>`; returns the bytes of the path. */
function addRecord(listing: Listing, record: Buffer, origin: Origin, gitlinksOnly: boolean): number {
  const tab = record.indexOf(0x09)
  const [mode = '', , oid = '', size = ''] = record.toString('latin1', 0, tab).split(/ +/)
  const path = () => origin.prefix + decodePath(record.subarray(tab + 1))
  if (mode === '160000') listing.gitlinks.push({ path: path(), sha: oid })
  else if (!gitlinksOnly) listing.entries.push(new TreeEntry(path(), mode, Number(size), oid, origin))
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
