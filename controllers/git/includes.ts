import { createHash } from 'node:crypto'
import type { ServedArtifact } from '../artifact/artifact.ts'
import { checkEntryPath } from '../artifact/archive/entry-path.ts'
import { quote } from '../artifact/quote.ts'
import type { Artifact } from '../artifact/types.ts'
import { messageOf, ReconcileError, StalledError, WaitingError } from '../runtime/errors.ts'
import { isObjectName } from '../runtime/kind.ts'
import { StorageOperationFailed } from '../source/conditions.ts'
import type { SourceContext } from '../source/source.ts'
import { type GitRepository, type GitRepositoryInclude, GitRepositoryKind } from './types.ts'

/** The condition of an object whose includes cannot be had. */
export const IncludeUnavailable = 'IncludeUnavailable'

/** The most includes of an object, each of which is in its status, and the most repositories that they may lead to, of their own and those of others. */
const maxReached = 100

/** A folder of another object's artifact, and where it goes. */
export interface Include {
  name: string
  /** Folders without `/` at their ends; '' for all of it. */
  fromPath: string
  toPath: string
  artifact: Artifact
}

/** What the includes of an object are now. */
export interface Includes {
  parts: Include[]
  /** For `status.includedArtifacts`, in the order of the spec. */
  artifacts: ServedArtifact[]
  /** Names the content of all of them and where it goes. */
  key: string
}

/**
 * Finds the artifacts of `spec.include`; undefined where there is none. Throws WaitingError `NotFound` or `NoArtifact`, ReconcileError `IncludeCycle`, StalledError
 * `IllegalPath` or `TooManyIncludes`.
 */
export async function resolveIncludes(obj: GitRepository, ctx: SourceContext): Promise<Includes | undefined> {
  const specs = obj.spec.include ?? []
  if (specs.length === 0) return undefined
  if (specs.length > maxReached)
    throw new StalledError(
      'TooManyIncludes',
      `spec.include has ${specs.length} entries, at most ${maxReached} are allowed`,
      {
        condition: IncludeUnavailable,
      },
    )
  const found = specs.map((spec) => ({ ...pathsOf(spec, obj), artifact: artifactOf(spec.repository.name, ctx) }))
  const parts = found.flatMap(({ artifact, ...paths }) => (artifact ? [{ ...paths, artifact }] : []))
  const artifacts = parts.map(({ artifact }) => servedOf(artifact))
  const missing = found.find(({ artifact }) => !artifact)?.name
  // Without a change of what is included, nothing can have come round to this object.
  if (missing !== undefined || includesDiffer(obj, artifacts)) await refuseCycle(obj, missing, ctx)
  const content = parts.map(({ fromPath, toPath, artifact }) => [artifact.spec?.digest, fromPath, toPath])
  return { parts, artifacts, key: createHash('sha256').update(JSON.stringify(content)).digest('hex') }
}

/** Whether other artifacts are included than those of the last stored artifact. */
export function includesDiffer({ status }: GitRepository, artifacts: readonly ServedArtifact[]): boolean {
  const tell = (list: readonly { digest: string; revision: string }[]) =>
    JSON.stringify(list.map(({ digest, revision }) => [digest, revision]))
  return tell(status?.includedArtifacts ?? []) !== tell(artifacts)
}

function artifactOf(name: string, ctx: SourceContext): Artifact | undefined {
  const artifact = ctx.artifacts.of(GitRepositoryKind, name)
  return artifact?.spec?.digest ? artifact : undefined
}

/** Artifacts know no path; in an address it is what follows the host. */
function servedOf({ spec }: Artifact): ServedArtifact {
  const { url = '', revision = '', digest = '', size, lastUpdateTime = '', metadata } = spec ?? {}
  const path = (URL.parse(url)?.pathname ?? '').slice(1)
  return {
    path,
    url,
    revision,
    digest,
    lastUpdateTime,
    ...(size !== undefined && { size }),
    ...(metadata && { metadata }),
  }
}

function pathsOf(spec: GitRepositoryInclude, obj: GitRepository): Omit<Include, 'artifact'> {
  const { name } = spec.repository
  const refuse = (reason: string, message: string) =>
    new StalledError(reason, message, { condition: IncludeUnavailable })
  if (!isObjectName(name))
    throw refuse('NotFound', `could not get resource for include ${quote(name)}: not a name of an object`)
  if (name === obj.metadata.name) throw refuse('IncludeCycle', `include '${name}' is this object itself`)
  return { name, fromPath: folderOf(spec.fromPath || '.', name), toPath: folderOf(spec.toPath || name, name) }
}

/** A folder in its one form: no `.`, no empty component, no `/` at its ends. */
function folderOf(text: string, name: string): string {
  const parts = text.split('/').filter((part) => part !== '.' && part !== '')
  const path = (text.startsWith('/') ? '/' : '') + parts.join('/')
  try {
    if (path !== '') checkEntryPath(path)
    return path
  } catch (err) {
    throw new StalledError('IllegalPath', `path calculation for include '${name}' failed: ${messageOf(err)}`, {
      condition: StorageOperationFailed,
    })
  }
}

/**
 * Objects that include each other would grow with every round, and each round would follow at once. Their specs are read from the API server, as another process
 * may look after them. `missing` is an include without an artifact, for which the same reads tell why.
 */
async function refuseCycle(obj: GitRepository, missing: string | undefined, ctx: SourceContext): Promise<void> {
  const { name: own, namespace = '' } = obj.metadata
  const reached = new Map(namesOf(obj).map((name) => [name, [own, name]]))
  for (const [name, way] of reached) {
    const other = isObjectName(name)
      ? await ctx.client.get(GitRepositoryKind, { namespace, name }, ctx.signal)
      : undefined
    if (!other && name === missing)
      throw waiting('NotFound', `could not get resource for include '${name}': ${notFound(name)}`)
    for (const next of other ? namesOf(other) : []) {
      if (next === own)
        throw unavailable('IncludeCycle', `the includes lead back to this object: ${[...way, own].join(' → ')}`)
      if (!reached.has(next)) reached.set(next, [...way, next])
    }
    if (reached.size > maxReached)
      throw unavailable('IncludeCycle', `the includes lead to more than ${maxReached} repositories`)
  }
  if (missing !== undefined) throw waiting('NoArtifact', `no artifact available for include '${missing}'`)
}

function namesOf({ spec }: GitRepository): string[] {
  return (spec.include ?? []).map(({ repository }) => repository.name)
}

function notFound(name: string): string {
  return `${GitRepositoryKind.plural}.${GitRepositoryKind.group} "${name}" not found`
}

function waiting(reason: string, message: string): WaitingError {
  return new WaitingError(reason, message, { condition: IncludeUnavailable })
}

/** Not for good: the change that helps may be one of another object. */
function unavailable(reason: string, message: string): ReconcileError {
  return new ReconcileError(reason, message, { condition: IncludeUnavailable })
}
