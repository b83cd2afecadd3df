import type { Entry } from '../../artifact/entry.ts'
import { messageOf, ReconcileError } from '../../runtime/errors.ts'
import { parseCommit, type CommitInfo } from './commit.ts'
import { aborted, gitFailure } from '../failure.ts'
import { DamagedError, isDamage } from '../mirror/fetch.ts'
import { listTree, type ListingLimits } from './listing.ts'
import type { Lease } from '../mirror/mirror.ts'
import { ObjectError, ObjectReader } from './objects.ts'

/** The files of one commit, to be read straight out of the mirror. */
export interface Tree {
  commit: CommitInfo
  entries: Entry[]
  /** Entries that are not files and do not get into an artifact. */
  symlinks: number
  submodules: number
  close(): Promise<void>
}

export interface TreeOptions {
  lease: Lease
  sha: string
  /** The URL that messages name. */
  shownUrl: string
  signal: AbortSignal
  limits?: ListingLimits | undefined
}

/**
 * Opens a commit that is in the mirror. Bodies come in the order in which they are asked for. Throws a DamagedError where the mirror is not what git left
 * there; the lease has been told of it then. Entries throw the same errors when they are opened.
 */
export async function openTree(options: TreeOptions): Promise<Tree> {
  const { lease, sha, signal, limits } = options
  const reader = new ObjectReader(lease.repository, signal, (err) => explained(err, options))
  try {
    const listed = listTree(lease.repository, sha, (oid) => reader.read(oid, 'blob'), signal, limits)
    const read = commitFrom(reader, sha)
    await Promise.allSettled([read, listed])
    // Where both fail, what the object itself says comes first: the listing only says that it is no tree.
    const commit = await read
    const { files, symlinks, submodules } = await listed
    return { commit, entries: files, symlinks, submodules, close: () => reader.close() }
  } catch (err) {
    await reader.close()
    throw explained(err, options)
  }
}

/** Reads the commit alone. Throws what `openTree` throws. */
export async function readCommit(options: TreeOptions): Promise<CommitInfo> {
  const reader = new ObjectReader(options.lease.repository, options.signal, (err) => explained(err, options))
  try {
    return await commitFrom(reader, options.sha)
  } finally {
    await reader.close()
  }
}

async function commitFrom(reader: ObjectReader, sha: string): Promise<CommitInfo> {
  const content = await reader.read(sha, 'commit')
  if (Buffer.isBuffer(content)) return parseCommit(content)
  content.destroy()
  throw new Error(`commit '${sha}' is larger than 1 MiB`)
}

function explained(err: unknown, { lease, shownUrl, signal }: TreeOptions): Error {
  if (err instanceof ReconcileError) return err
  if (signal.aborted) return aborted(shownUrl, signal)
  const failure = gitFailure(shownUrl, messageOf(err), { cause: err })
  if (!(err instanceof ObjectError) && !isDamage(err)) return failure
  lease.reportDamage()
  return new DamagedError(failure.reason, failure.message, { cause: err })
}
