import type { ServedArtifact } from '../artifact/artifact.ts'
import type { Identity } from '../source/identity/identity.ts'
import type { Fetched, Resolved, Source, SourceContext } from '../source/source.ts'
import { accessFor } from './access/access.ts'
import { addressesOf, askInOrder } from './addresses.ts'
import { metadataOf } from './content/commit.ts'
import type { ListingLimits } from './content/listing.ts'
import { sparsePathsOf } from './content/sparse.ts'
import { IncludeUnavailable, includesDiffer, resolveIncludes, type Includes } from './includes.ts'
import type { Mirror } from './mirror/mirror.ts'
import type { Mirrors } from './mirror/mirrors.ts'
import { offer } from './offer.ts'
import { revisionOf, wantedBy } from './refs.ts'
import { resolveCommit, type FoundCommit } from './resolve.ts'
import { type Scoped, scopeMetadata, withinScope } from './revision-scope.ts'
import { GitRepositoryKind, type GitRepository } from './types.ts'
import { makeCommitVerifier } from './verify/commit-verifier.ts'

export interface GitSourceOptions {
  mirrors: Mirrors
  listingLimits: ListingLimits
  /** The most bytes of LFS objects that one repository keeps. */
  maxLfsBytes?: number
  /** Whose identity objects with a provider use. Defaults to the controller's own. */
  identity?: Identity
}

/** What one pass has found upstream; `fetch` and `verify` get it back. */
export interface Commit extends FoundCommit, Omit<Scoped, 'revision'> {
  mirror: Mirror
  includes?: Includes | undefined
}

/** The git source: which commit is at the ref, its files, and whether it is signed. Everything else is the source reconciler's. */
export function makeGitSource(options: GitSourceOptions): Source<GitRepository, Commit> {
  const { mirrors, identity } = options
  const verifier = makeCommitVerifier(mirrors.home)
  return {
    kind: GitRepositoryKind,
    failureConditions: [IncludeUnavailable],

    async resolve(obj: GitRepository, ctx: SourceContext): Promise<Resolved<Commit>> {
      const { spec } = obj
      const wanted = wantedBy(spec.ref)
      const urls = addressesOf(spec)
      sparsePathsOf(spec.sparseCheckout) // what is wrong with it is said before anyone is asked
      const includes = await resolveIncludes(obj, ctx)
      const found = await askInOrder(urls, spec, ctx, async (url, asked) => {
        const mirror = mirrors.mirrorFor(url.href, await accessFor(obj, url, asked, identity))
        const commit = await resolveCommit(wanted, mirror, asked.signal)
        // Nobody is asked for a bare commit; of several addresses one that answers must be found all the same.
        if (commit.ref === undefined && urls.length > 1) await mirror.remote.greet(0, asked.signal)
        return { ...commit, mirror }
      })
      const { revision, ...scoped } = await withinScope(obj, found, revisionOf(found.sha, found.pointer), ctx.signal)
      return { revision, upstream: { ...found, ...scoped, includes } }
    },

    unchanged: (revision) => ({
      reason: 'GitOperationSucceeded',
      message: `no changes since last reconciliation: observed revision '${revision}'`,
    }),

    async fetch(obj: GitRepository, { upstream }: Resolved<Commit>, ctx: SourceContext): Promise<Fetched> {
      const { commit, ...offered } = await offer(obj, upstream, options, ctx)
      if (upstream.kept) return { ...offered, metadata: upstream.kept }
      const metadata = { ...metadataOf(commit), ...scopeMetadata(upstream.scope) }
      return { ...offered, summary: `commit '${commit.subject}'`, metadata }
    },

    verify: (obj, { upstream }, ctx) => verifier(obj, upstream, ctx),

    observed: ({ spec }, { upstream }) => ({
      observedSparseCheckout: orAbsent(spec.sparseCheckout),
      observedRecurseSubmodules: spec.recurseSubmodules || undefined,
      observedInclude: orAbsent(spec.include),
      includedArtifacts: orAbsent<ServedArtifact>(upstream.includes?.artifacts),
      // Changes no bytes; but only what was stored under it says what the revision follows.
      observedRevisionScope: spec.revisionScope === 'SparseCheckout' ? spec.revisionScope : undefined,
      observedSymlinks: spec.symlinks === 'Keep' ? spec.symlinks : undefined,
      observedLFS: spec.lfs || undefined,
      sourceVerificationMode: spec.verify && verifiedMode(spec.verify.mode),
    }),

    outdated: (obj, { upstream }) =>
      includesDiffer(obj, upstream.includes?.artifacts ?? [])
        ? { reason: 'IncludeChange', message: 'included artifacts differ from last observed includes' }
        : undefined,
  }
}

/** An empty list asks for nothing, and so does none. */
function orAbsent<T>(list: readonly T[] | undefined): readonly T[] | undefined {
  return list?.length ? list : undefined
}

/** `head` is what older manifests say. */
function verifiedMode(mode = 'HEAD'): string {
  return mode === 'head' ? 'HEAD' : mode
}
