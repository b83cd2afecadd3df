import type { Fetched, Resolved, Source, SourceContext } from '../source/source.ts'
import { accessFor, anonymous } from './access/access.ts'
import { DamagedError } from './mirror/fetch.ts'
import type { ListingLimits } from './content/listing.ts'
import type { Mirror } from './mirror/mirror.ts'
import type { Mirrors } from './mirror/mirrors.ts'
import { revisionOf, wantedBy } from './refs.ts'
import { resolveCommit, type FoundCommit } from './resolve.ts'
import { openTree, type Tree } from './content/tree.ts'
import { GitRepositoryKind, type GitRepository } from './types.ts'
import { refuseUnsupported } from './unsupported.ts'
import { parseRepositoryUrl } from './url.ts'

export interface GitSourceOptions {
  mirrors: Mirrors
  listingLimits: ListingLimits
}

/** What one pass has found upstream; `fetch` gets it back. */
export interface Commit extends FoundCommit {
  mirror: Mirror
}

/** The git source: which commit is at the ref, and its files. Everything else is the source reconciler's. */
export function makeGitSource({ mirrors, listingLimits }: GitSourceOptions): Source<GitRepository, Commit> {
  return {
    kind: GitRepositoryKind,

    async resolve(obj: GitRepository, ctx: SourceContext): Promise<Resolved<Commit>> {
      refuseUnsupported(obj)
      const url = parseRepositoryUrl(obj.spec.url)
      const wanted = wantedBy(obj.spec.ref)
      const mirror = mirrors.mirrorFor(url.href, await accessFor(obj, url, ctx))
      const found = await resolveCommit(wanted, mirror, ctx.signal)
      return { revision: revisionOf(found.sha, found.pointer), upstream: { ...found, mirror } }
    },

    unchanged: (revision) => ({
      reason: 'GitOperationSucceeded',
      message: `no changes since last reconciliation: observed revision '${revision}'`,
    }),

    async fetch(_obj: GitRepository, { upstream }: Resolved<Commit>, ctx: SourceContext): Promise<Fetched> {
      await proveAccess(upstream, ctx.signal)
      const tree = await openCommit(upstream, ctx.signal, listingLimits)
      const { symlinks, submodules } = tree
      if (symlinks + submodules > 0) ctx.log.debug({ symlinks, submodules }, 'left out what is no file')
      return { entries: tree.entries, summary: `commit '${tree.commit.subject}'`, close: () => tree.close() }
    },
  }
}

/**
 * A commit that is known by its id alone is resolved without a request. Before one is handed out that others have fetched with these
 * credentials, the server must have accepted them lately: they may have been revoked.
 */
async function proveAccess({ sha, ref, mirror }: Commit, signal: AbortSignal): Promise<void> {
  if (ref !== undefined || mirror.remote.access === anonymous || !(await mirror.has(sha))) return
  await mirror.remote.greet(60_000, signal)
}

/** A mirror that turns out to be damaged is made anew, once. */
async function openCommit({ sha, ref, mirror }: Commit, signal: AbortSignal, limits: ListingLimits): Promise<Tree> {
  for (let again = false; ; again = true) {
    const lease = await mirror.fetchCommit({ sha, ref }, signal)
    try {
      const tree = await openTree({ lease, sha, shownUrl: mirror.remote.url, signal, limits })
      return { ...tree, close: () => tree.close().finally(lease.release) }
    } catch (err) {
      lease.release()
      if (again || !(err instanceof DamagedError)) throw err
    }
  }
}
