import { StalledError } from '../controllers/runtime/errors.ts'
import { groupOf } from '../controllers/runtime/kind.ts'
import { referenceKey } from '../controllers/runtime/owners.ts'
import { ArtifactKind } from '../controllers/artifact/types.ts'
import { quote } from '../controllers/artifact/quote.ts'

/** How a spec names its source: any object that owns an Artifact, or an Artifact itself. */
export interface SourceRef {
  /** `group/version`, or `v1` for the core group. Not needed for the kinds of Flux and for Artifact. */
  apiVersion?: string | undefined
  kind: string
  name: string
  /** Defaults to the namespace of the object that holds the reference. */
  namespace?: string | undefined
}

/** A kind of source, whatever its version. */
export interface SourceKind {
  /** Empty for the core group. */
  group: string
  kind: string
}

/** A complete reference. The version is no part of it: it may change under a reference. */
export interface SourceId extends SourceKind {
  namespace: string
  name: string
}

const fluxGroup = 'source.toolkit.fluxcd.io'
const fluxKinds = ['GitRepository', 'OCIRepository', 'HelmRepository', 'HelmChart', 'Bucket', 'ExternalArtifact']

/** The group of each kind that may be named without an apiVersion. */
const knownGroups: ReadonlyMap<string, string> = new Map([
  ...fluxKinds.map((kind) => [kind, fluxGroup] as const),
  [ArtifactKind.kind, ArtifactKind.group],
])

const label = '[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?'
// 253 characters for the group, 63 for the version
const apiVersionPattern = new RegExp(`^(?=.{1,317}$)(${label}(\\.${label})*/)?${label}$`)
const namespacePattern = new RegExp(`^${label}$`)
const kindPattern = /^[A-Za-z]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?$/
/** Kubernetes lets each kind choose the rule for its names; these can be part of no path. */
const namePattern = /^(?!\.{1,2}$)[^/%\s\p{Cc}]{1,253}$/u

/**
 * The complete form of a reference found in an object of `namespace`. Throws StalledError `InvalidSourceRef`, naming the field, where it is malformed or
 * where only the author can know the group.
 */
export function parseSourceRef(ref: SourceRef | undefined, namespace: string): SourceId {
  if (typeof ref !== 'object' || ref === null) throw invalid('sourceRef', ref, 'it must name a kind and a name')
  const kind = checked('sourceRef.kind', ref.kind, kindPattern, 'it must be a kind such as GitRepository')
  const name = checked('sourceRef.name', ref.name, namePattern, 'it must be the name of an object')
  const group = groupFor(kind, ref.apiVersion)
  const where = ref.namespace
    ? checked('sourceRef.namespace', ref.namespace, namespacePattern, 'it must be a namespace')
    : namespace
  return { group, kind, namespace: where, name }
}

/** The key under which the indexes over owners and over references have it: `group/kind/namespace/name`. */
export function sourceKey(id: SourceId): string {
  return referenceKey(id.group, id.kind, id.namespace, id.name)
}

function groupFor(kind: string, apiVersion: string | undefined): string {
  if (!apiVersion) {
    const group = knownGroups.get(kind)
    if (group !== undefined) return group
    const known = [...knownGroups.keys()].join(', ')
    const rule = `add the apiVersion of kind ${kind}, e.g. example.com/v1; only ${known} can do without`
    throw new StalledError('InvalidSourceRef', `sourceRef.apiVersion is missing: ${rule}`)
  }
  const rule = 'it must be <group>/<version>, or v1 for the core group'
  return groupOf(checked('sourceRef.apiVersion', apiVersion, apiVersionPattern, rule))
}

function checked(field: string, value: unknown, pattern: RegExp, rule: string): string {
  if (typeof value === 'string' && pattern.test(value)) return value
  throw invalid(field, value, rule)
}

function invalid(field: string, value: unknown, rule: string): StalledError {
  if (value === undefined || value === null || value === '')
    return new StalledError('InvalidSourceRef', `${field} is missing: ${rule}`)
  const shown = typeof value === 'string' ? quote(value, 64) : `a value of type ${typeof value}`
  return new StalledError('InvalidSourceRef', `${field} is ${shown}: ${rule}`)
}
