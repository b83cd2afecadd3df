import { ReconcileError } from '../runtime/errors.ts'
import { parseVersion } from '../source/semver.ts'
import { gitFailure } from './failure.ts'
import type { Mirror } from './mirror/mirror.ts'
import type { RemoteRef } from './protocol/advertisement.ts'
import type { Remote } from './protocol/remote.ts'
import type { Wanted } from './refs.ts'
import { readCommit } from './content/tree.ts'

/** A commit upstream. */
export interface FoundCommit {
  sha: string
  /** Where the server has it; absent where nobody has asked. */
  ref?: string | undefined
  /** What the revision says before the `@`. */
  pointer?: string | undefined
}

/** Finds the wanted commit with as few bytes as possible: one narrow question, or none at all for a bare commit. */
export async function resolveCommit(wanted: Wanted, mirror: Mirror, signal: AbortSignal): Promise<FoundCommit> {
  const { remote } = mirror
  if (wanted.by === 'semver') return await highestTag(wanted, mirror, signal)
  if (wanted.by === 'ref') return { ...wanted, sha: await commitAt(remote, wanted.ref, signal) }
  const { sha, ref, pointer } = wanted
  if (ref === undefined) return { sha }
  const tip = { ref, sha: await commitAt(remote, ref, signal) }
  if (!(await mirror.contains(tip, sha, signal))) {
    throw gitFailure(remote.url, `commit '${sha}' is not part of '${ref}'`)
  }
  return { sha, ref, pointer }
}

async function commitAt(remote: Remote, name: string, signal: AbortSignal): Promise<string> {
  const [ref] = await remote.listRefs({ prefixes: [name], keep: (n) => n === name, enough: 1 }, signal)
  if (ref) return ref.peeled ?? ref.oid
  await refuseEmpty(remote, signal)
  throw gitFailure(remote.url, `couldn't find remote ref "${name}"`)
}

/** Asked only where something is missing: one ref of any name tells that the repository is not empty. */
async function refuseEmpty(remote: Remote, signal: AbortSignal): Promise<void> {
  const any = await remote.listRefs(
    { prefixes: ['refs/'], keep: (name) => name.startsWith('refs/'), enough: 1 },
    signal,
  )
  if (any.length === 0) throw new ReconcileError('EmptyGitRepository', 'git repository is empty')
}

const tags = 'refs/tags/'

async function highestTag(
  wanted: Wanted & { by: 'semver' },
  mirror: Mirror,
  signal: AbortSignal,
): Promise<FoundCommit> {
  const { remote } = mirror
  const versionOf = (name: string) => parseVersion(name.slice(tags.length))
  const keep = (name: string) => {
    const version = name.startsWith(tags) ? versionOf(name) : undefined
    return version !== undefined && wanted.range.includes(version)
  }
  let best: RemoteRef[] = []
  for (const ref of await remote.listRefs({ prefixes: [tags], keep }, signal)) {
    const order = best[0] ? versionOf(ref.name)!.compare(versionOf(best[0].name)!) : 1
    if (order > 0) best = [ref]
    else if (order === 0) best.push(ref)
  }
  if (best.length === 0) {
    await refuseEmpty(remote, signal)
    throw gitFailure(remote.url, `no match found for semver: ${wanted.text}`)
  }
  const { name, oid, peeled } = await newest(best, mirror, signal)
  return { sha: peeled ?? oid, ref: name, pointer: name.slice(tags.length) }
}

const maxTies = 16
const committedAt = new Map<string, number>()

/** Of tags that differ only in build metadata the one with the newest commit; of those on one commit the last by name. */
async function newest(refs: RemoteRef[], mirror: Mirror, signal: AbortSignal): Promise<RemoteRef> {
  const sorted = refs.toSorted((a, b) => (a.name < b.name ? 1 : -1)).slice(0, maxTies)
  let best = sorted[0]!
  if (sorted.every((ref) => commitOf(ref) === commitOf(best))) return best
  for (const ref of sorted) {
    if ((await timeOf(ref, mirror, signal)) > (await timeOf(best, mirror, signal))) best = ref
  }
  return best
}

function commitOf({ oid, peeled }: RemoteRef): string {
  return peeled ?? oid
}

async function timeOf(ref: RemoteRef, mirror: Mirror, signal: AbortSignal): Promise<number> {
  const sha = commitOf(ref)
  const known = committedAt.get(sha)
  if (known !== undefined) return known
  const lease = await mirror.fetchCommit({ sha, ref: ref.name }, signal)
  try {
    const { committedAt: time } = await readCommit({ lease, sha, shownUrl: mirror.remote.url, signal })
    if (committedAt.size > 10_000) committedAt.clear()
    committedAt.set(sha, time)
    return time
  } finally {
    lease.release()
  }
}
