import type { Entries } from '../artifact/entry.ts'
import type { Fetched, SourceContext } from '../source/source.ts'
import type { CommitInfo } from './content/commit.ts'
import { openContent } from './content/content.ts'
import { addIncludes } from './include-entries.ts'
import { withLfs } from './lfs/lfs.ts'
import type { Mirror } from './mirror/mirror.ts'
import type { Commit, GitSourceOptions } from './source.ts'
import type { GitRepository } from './types.ts'

const defaultMaxLfsBytes = 4 * 1024 ** 3

/** The files of a commit as the spec wants them: its own, those of submodules and LFS, and those of others that it includes. */
export async function offer(
  { spec }: GitRepository,
  { mirror, sha, ref, includes }: Commit,
  { mirrors, listingLimits, maxLfsBytes = defaultMaxLfsBytes }: GitSourceOptions,
  ctx: SourceContext,
): Promise<Fetched & { commit: CommitInfo }> {
  const { signal } = ctx
  const submodules = spec.recurseSubmodules ? mirrors : undefined
  const changes = new Set<() => void>()
  const resolved = (entries: Entries, { remote, key, lfs }: Mirror) => {
    changes.add(lfs.changed)
    return withLfs(entries, { remote, key, folder: lfs.folder, maxBytes: maxLfsBytes, signal })
  }
  const content = await openContent({
    mirror,
    sha,
    ref,
    sparse: spec.sparseCheckout,
    submodules,
    limits: listingLimits,
    transform: spec.lfs ? resolved : undefined,
    signal,
  })
  const merged = includes && addIncludes(content.entries, includes.parts, ctx)
  return {
    commit: content.commit,
    entries: merged?.entries ?? content.entries,
    contentKey: JSON.stringify([content.contentKey, spec.lfs ? 'lfs' : '', includes?.key ?? '']),
    symlinks: spec.symlinks === 'Keep' ? 'keep' : 'drop',
    close: async () => {
      await Promise.all([merged?.close(), content.close()])
      for (const changed of changes) changed()
    },
  }
}
