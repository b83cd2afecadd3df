import { scopeDigest } from './content/scope.ts'
import type { Mirror } from './mirror/mirror.ts'
import type { FoundCommit } from './resolve.ts'
import type { GitRepository } from './types.ts'

const key = 'git.scope'

/** Where the identity of what the revision follows is kept until the next pass: in the artifact's metadata. */
export function scopeMetadata(scope: string | undefined): Record<string, string> {
  return scope === undefined ? {} : { [key]: scope }
}

/** What the revision is by `spec.revisionScope`. */
export interface Scoped {
  revision: string
  /** Identity of what is at the paths of `sparseCheckout`, where the revision follows only those. */
  scope?: string | undefined
  /** What the artifact says of the revision's own commit, where that is another one than was found. */
  kept?: Record<string, string> | undefined
}

/**
 * With `spec.revisionScope: SparseCheckout` the revision stays what it was while nothing below the folders of `sparseCheckout` has changed, and
 * the pointer is the same. Asks the server for folders alone where it can leave out files.
 */
export async function withinScope(
  { spec, status }: GitRepository,
  { sha, ref, mirror }: FoundCommit & { mirror: Mirror },
  revision: string,
  signal: AbortSignal,
): Promise<Scoped> {
  if (spec.revisionScope !== 'SparseCheckout') return { revision }
  const scope = await scopeDigest({ mirror, sha, ref, signal }, spec.sparseCheckout)
  const stored = status?.artifact
  const isSame = stored?.metadata?.[key] === scope && pointerOf(stored.revision) === pointerOf(revision)
  return isSame ? { revision: stored.revision, scope, kept: stored.metadata } : { revision, scope }
}

/** What stands before the commit's id. */
function pointerOf(revision: string): string {
  return revision.slice(0, revision.lastIndexOf(':'))
}
