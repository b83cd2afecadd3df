import { messageOf, ReconcileError } from '../../runtime/errors.ts'
import { aborted, gitFailure } from '../failure.ts'
import { DamagedError, isDamage } from '../mirror/fetch.ts'
import type { Lease, Mirror } from '../mirror/mirror.ts'
import { parseCommit, type CommitInfo } from './commit.ts'
import { ObjectError, ObjectReader } from './objects.ts'

/** A commit, or a tag object, of a mirror. */
export interface Place {
  mirror: Mirror
  /** The object's id. */
  sha: string
  /** Where the server has just said it is; absent where nobody has asked. */
  ref?: string | undefined
  /** True: not all of its files are needed, and where the server can leave them out they are not fetched. */
  partial?: boolean | undefined
  signal: AbortSignal
}

const proofLifetimeMs = 60_000

/**
 * What `work` makes of an object that is fetched where it is missing. A mirror that turns out to be damaged is made anew, once. The lease is the
 * work's own to release where it succeeds.
 */
export async function withObject<R>(place: Place, work: (lease: Lease) => Promise<R>): Promise<R> {
  await proveAccess(place)
  for (let again = false; ; again = true) {
    const lease = await place.mirror.fetchCommit(place, place.signal)
    try {
      return await work(lease)
    } catch (err) {
      lease.release()
      if (again || !(err instanceof DamagedError)) throw err
    }
  }
}

/** Reads a commit; where this process has seen it before, out of its memory. Throws ReconcileError `GitOperationFailed`. */
export async function readCommit(place: Place): Promise<CommitInfo> {
  return commitFrom(place, await readObject(place, 'commit'))
}

/** The bytes of a commit or tag object (up to 1 MiB), which are what its id says. Throws ReconcileError `GitOperationFailed`. */
export async function readObject(place: Place, type: 'commit' | 'tag'): Promise<Buffer> {
  const known = recall(place, type)
  if (known) {
    await proveAccess(place)
    return known
  }
  return await withObject(place, async (lease) => {
    const content = await readLeased(place, lease, type)
    lease.release()
    return content
  })
}

/** The same for a place that is leased already. */
export async function readLeased(place: Place, lease: Lease, type: 'commit' | 'tag'): Promise<Buffer> {
  const { mirror, signal } = place
  return await mirror.memory.read(memoryKey(place, type), signal, (shared) => read(place, lease, type, shared))
}

/** The bytes of a commit, read. */
export function commitFrom({ mirror, sha }: Place, content: Buffer): CommitInfo {
  try {
    return parseCommit(content)
  } catch (err) {
    throw gitFailure(mirror.remote.url, `commit '${sha}': ${messageOf(err)}`, { cause: err })
  }
}

/** What went wrong while something was read, for those who asked. Tells the lease where the repository is damaged. */
export function explained(err: unknown, lease: Lease, { mirror, signal }: Pick<Place, 'mirror' | 'signal'>): Error {
  if (err instanceof ReconcileError) return err
  if (signal.aborted) return aborted(mirror.remote.url, signal)
  const failure = gitFailure(mirror.remote.url, messageOf(err), { cause: err })
  if (!(err instanceof ObjectError) && !isDamage(err)) return failure
  lease.reportDamage()
  return new DamagedError(failure.reason, failure.message, { cause: err })
}

async function read(place: Place, lease: Lease, type: 'commit' | 'tag', signal: AbortSignal): Promise<Buffer> {
  const { mirror, sha } = place
  const reader = new ObjectReader(lease.repository, signal, (err) => explained(err, lease, { mirror, signal }))
  try {
    const content = await reader.read(sha, type)
    if (Buffer.isBuffer(content)) return content
    content.destroy()
  } finally {
    void reader.close() // nobody has to wait for its end
  }
  throw gitFailure(mirror.remote.url, `${type} '${sha}' is larger than 1 MiB`)
}

/**
 * An object that is known by its id alone is resolved without a request. Before one is handed out that others have fetched with these
 * credentials, or without any, the server must have accepted that lately: they may have been revoked, and what was public be private now.
 */
async function proveAccess(place: Place): Promise<void> {
  const { mirror, sha, ref, signal } = place
  if (ref !== undefined) return
  const isHere = recall(place, 'commit') ?? recall(place, 'tag') ?? (await mirror.has(sha))
  if (isHere) await mirror.remote.greet(proofLifetimeMs, signal)
}

function recall(place: Place, type: 'commit' | 'tag'): Buffer | undefined {
  return place.mirror.memory.get(memoryKey(place, type))
}

function memoryKey({ mirror, sha }: Place, type: string): string {
  return `${mirror.key} ${type} ${sha}`
}
