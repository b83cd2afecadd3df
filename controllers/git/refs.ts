import type { SemVer } from 'semver'
import { messageOf } from '../runtime/errors.ts'
import { parseRange, parseVersion } from '../source/semver.ts'
import { checkRefName, invalidRef } from './ref-name.ts'
import { makeTagFilter } from './tag-filter.ts'
import type { GitRepositoryRef } from './types.ts'

/** Which commit is wanted. `pointer` is what the revision says before the `@`. */
export type Wanted =
  /** The commit that `ref` points to. */
  | { by: 'ref'; ref: string; pointer: string }
  /** This commit, which must be reachable from `ref` where one is given. */
  | { by: 'commit'; sha: string; ref?: string; pointer?: string }
  /** The commit of the tag with the highest version; `versionOf` is undefined for tags that do not count. */
  | { by: 'semver'; versionOf: (tag: string) => SemVer | undefined; text: string }
  /** The commit of the branch that the repository's HEAD names. */
  | { by: 'head' }

/** Precedence: commit, name, tag, semver, branch, defaultBranch, and `master` where nothing is set. Throws a StalledError that names the field. */
export function wantedBy(spec: GitRepositoryRef = {}): Wanted {
  if (spec.commit) return wantedCommit(spec.commit, spec)
  if (spec.name) return { by: 'ref', ref: fullName(spec.name), pointer: spec.name }
  if (spec.tag) return { by: 'ref', ref: prefixed('tag', 'refs/tags/', spec.tag), pointer: spec.tag }
  if (spec.semver) return wantedVersion(spec.semver, spec.tagFilter)
  if (spec.defaultBranch && !spec.branch) return { by: 'head' }
  const branch = spec.branch || 'master'
  return { by: 'ref', ref: prefixed('branch', 'refs/heads/', branch), pointer: branch }
}

/** `main@sha1:<commit>`, `refs/pull/1/head@sha1:<commit>`, or `sha1:<commit>` where no ref is known. */
export function revisionOf(sha: string, pointer?: string): string {
  return pointer ? `${pointer}@sha1:${sha}` : `sha1:${sha}`
}

function wantedCommit(text: string, spec: GitRepositoryRef): Wanted {
  const sha = checkCommit(text)
  if (spec.name) return { by: 'commit', sha, ref: fullName(spec.name), pointer: spec.name }
  if (spec.branch) {
    return { by: 'commit', sha, ref: prefixed('branch', 'refs/heads/', spec.branch), pointer: spec.branch }
  }
  return { by: 'commit', sha }
}

function checkCommit(text: string): string {
  const sha = text.toLowerCase()
  if (/^[0-9a-f]{40}$/.test(sha)) return sha
  const field = 'spec.ref.commit'
  if (/^[0-9a-f]{64}$/.test(sha)) throw invalidRef(field, text, 'SHA-256 repositories are not supported')
  if (/^[0-9a-f]{1,39}$/.test(sha)) throw invalidRef(field, text, 'abbreviated, write all 40 hexadecimal digits')
  throw invalidRef(field, text, 'must be 40 hexadecimal digits')
}

/** `^{}` (the commit behind an annotated tag) is accepted and changes nothing: tags are always peeled. */
function fullName(name: string): string {
  const ref = name.endsWith('^{}') ? name.slice(0, -3) : name
  checkRefName('spec.ref.name', ref)
  if (ref !== 'HEAD' && !/^refs\/./.test(ref)) throw invalidRef('spec.ref.name', name, "must start with 'refs/'")
  return ref
}

function prefixed(field: string, prefix: string, name: string): string {
  checkRefName(`spec.ref.${field}`, name)
  return prefix + name
}

function wantedVersion(text: string, filter: GitRepositoryRef['tagFilter']): Wanted {
  const range = rangeOf(text)
  const versionTextOf = filter ? makeTagFilter(filter) : (tag: string) => tag
  const versionOf = (tag: string): SemVer | undefined => {
    const versionText = versionTextOf(tag)
    const version = versionText === undefined ? undefined : parseVersion(versionText)
    return version && range.includes(version) ? version : undefined
  }
  return { by: 'semver', versionOf, text }
}

function rangeOf(text: string): ReturnType<typeof parseRange> {
  try {
    return parseRange(text)
  } catch (err) {
    throw invalidRef('spec.ref.semver', text, `semver parse error: ${messageOf(err)}`)
  }
}
