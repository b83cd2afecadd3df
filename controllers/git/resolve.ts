import type { SemVer } from 'semver'
import { ReconcileError } from '../runtime/errors.ts'
import { gitFailure } from './failure.ts'
import type { Mirror } from './mirror/mirror.ts'
import type { RemoteRef } from './protocol/advertisement.ts'
import type { Remote } from './protocol/remote.ts'
import { brokenRule } from './ref-name.ts'
import type { Wanted } from './refs.ts'
import { readCommit } from './content/reading.ts'

/** A commit upstream. */
export interface FoundCommit {
  sha: string
  /** Where the server has it; absent where nobody has asked. */
  ref?: string | undefined
  /** What the revision says before the `@`. */
  pointer?: string | undefined
  /** The tag by which it was found; `oid` is that of the tag object, or of the commit itself where the tag is a lightweight one. */
  tag?: { name: string; oid: string } | undefined
}

/** The server has answered, and does not have what is wanted: no other address of the same repository would. */
export class MissingError extends ReconcileError {}

/** Finds the wanted commit with as few bytes as possible: one narrow question, or none at all for a bare commit. */
export async function resolveCommit(wanted: Wanted, mirror: Mirror, signal: AbortSignal): Promise<FoundCommit> {
  const { remote } = mirror
  if (wanted.by === 'semver') return await highestTag(wanted, mirror, signal)
  if (wanted.by === 'head') return await defaultBranch(mirror.remote, signal)
  if (wanted.by === 'ref') return { pointer: wanted.pointer, ...(await commitAt(remote, wanted.ref, signal)) }
  const { sha, ref, pointer } = wanted
  if (ref === undefined) return { sha }
  const tip = await commitAt(remote, ref, signal)
  if (!(await mirror.contains(tip, sha, signal))) {
    throw missing(remote, `commit '${sha}' is not part of '${ref}'`)
  }
  return { sha, ref, pointer }
}

async function commitAt(remote: Remote, name: string, signal: AbortSignal): Promise<FoundAtRef> {
  const [ref] = await remote.listRefs({ prefixes: [name], keep: (n) => n === name, enough: 1 }, signal)
  if (ref) return foundAt(ref)
  await refuseEmpty(remote, signal)
  throw missing(remote, `couldn't find remote ref "${name}"`)
}

type FoundAtRef = FoundCommit & { ref: string }

function foundAt(ref: RemoteRef): FoundAtRef {
  const { name, oid } = ref
  return {
    sha: commitOf(ref),
    ref: name,
    ...(name.startsWith(tags) && { tag: { name: name.slice(tags.length), oid } }),
  }
}

function missing(remote: Remote, detail: string): ReconcileError {
  const { reason, message } = gitFailure(remote.url, detail)
  return new MissingError(reason, message)
}

const heads = 'refs/heads/'

/** The commit of HEAD, under the name of the branch that it stands for; of a HEAD that stands for none, as its own. */
async function defaultBranch(remote: Remote, signal: AbortSignal): Promise<FoundCommit> {
  const query = { prefixes: ['HEAD'], symrefs: true, keep: (name: string) => name === 'HEAD', enough: 1 }
  const [head] = await remote.listRefs(query, signal)
  if (!head) {
    await refuseEmpty(remote, signal)
    throw missing(remote, "the repository's HEAD names no branch that is there")
  }
  const { oid, symref = '' } = head
  if (!symref.startsWith(heads) || brokenRule(symref)) return { sha: oid, ref: 'HEAD', pointer: 'HEAD' }
  return { sha: oid, ref: symref, pointer: symref.slice(heads.length) }
}

/** Asked only where something is missing: one ref of any name tells that the repository is not empty. */
async function refuseEmpty(remote: Remote, signal: AbortSignal): Promise<void> {
  const any = await remote.listRefs(
    { prefixes: ['refs/'], keep: (name) => name.startsWith('refs/'), enough: 1 },
    signal,
  )
  if (any.length === 0) throw new MissingError('EmptyGitRepository', 'git repository is empty')
}

const tags = 'refs/tags/'

async function highestTag(
  wanted: Wanted & { by: 'semver' },
  mirror: Mirror,
  signal: AbortSignal,
): Promise<FoundCommit> {
  const { remote } = mirror
  const versions = new Map<string, SemVer>()
  const keep = (name: string) => {
    const version = name.startsWith(tags) ? wanted.versionOf(name.slice(tags.length)) : undefined
    if (version) versions.set(name, version)
    return version !== undefined
  }
  let best: RemoteRef[] = []
  for (const ref of await remote.listRefs({ prefixes: [tags], keep }, signal)) {
    const order = best[0] ? versions.get(ref.name)!.compare(versions.get(best[0].name)!) : 1
    if (order > 0) best = [ref]
    else if (order === 0) best.push(ref)
  }
  if (best.length === 0) {
    await refuseEmpty(remote, signal)
    throw missing(remote, `no match found for semver: ${wanted.text}`)
  }
  const found = foundAt(await newest(best, mirror, signal))
  return { ...found, pointer: found.tag?.name }
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
  const { committedAt: time } = await readCommit({ mirror, sha, ref: ref.name, signal })
  if (committedAt.size > 10_000) committedAt.clear()
  committedAt.set(sha, time)
  return time
}
