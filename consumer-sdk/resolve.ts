import { ownerIndex } from '../controllers/artifact/artifact.ts'
import { parseDigest } from '../controllers/artifact/digest.ts'
import { type Artifact, ArtifactKind } from '../controllers/artifact/types.ts'
import { messageOf, StalledError, WaitingError } from '../controllers/runtime/errors.ts'
import type { Indexer } from '../controllers/runtime/indexer.ts'
import { groupOf } from '../controllers/runtime/kind.ts'
import { parseArtifactUrl } from './artifact-url.ts'
import { parseSourceRef, type SourceId, sourceKey, type SourceKind, type SourceRef } from './source-ref.ts'

/** What an Artifact says, checked. */
export interface ResolvedArtifact {
  namespace: string
  name: string
  /** Where upstream stood, e.g. `main@sha1:<commit>`. */
  revision: string
  /** `<algorithm>:<hex>` of the file. */
  digest: string
  url: string
  /** Length of the file in bytes, where the source says it. */
  size?: number
  /** RFC 3339. */
  lastUpdateTime: string
  metadata: Readonly<Record<string, string>>
}

/** What a reference may point to. */
export interface ResolvePolicy {
  /** Refuse sources in other namespaces than the referring object's. */
  noCrossNamespaceRefs: boolean
  /** The kinds that are accepted; all of them where absent. */
  allowedKinds?: readonly SourceKind[] | undefined
}

const maxListed = 10

/**
 * The one Artifact that a reference in an object of `namespace` leads to, by the index over owners; the source itself is never read. Throws StalledError
 * `InvalidSourceRef`, `SourceKindNotAllowed`, `AccessDenied`, `AmbiguousArtifact` or WaitingError `ArtifactNotFound`, `OwnerReplaced`, `ArtifactInvalid`.
 */
export function resolveArtifact(
  artifacts: Indexer<Artifact>,
  ref: SourceRef | undefined,
  namespace: string,
  policy: ResolvePolicy,
): ResolvedArtifact {
  const id = parseSourceRef(ref, namespace)
  checkPolicy(id, namespace, policy)
  return describe(pickOne(id, candidates(artifacts, id)))
}

function checkPolicy(id: SourceId, namespace: string, policy: ResolvePolicy): void {
  const { allowedKinds } = policy
  if (allowedKinds && !allowedKinds.some(({ group, kind }) => group === id.group && kind === id.kind)) {
    const allowed = allowedKinds.map(({ group, kind }) => (group ? `${kind}.${group}` : kind)).join(', ')
    const what = id.group ? `${id.kind}.${id.group}` : id.kind
    throw new StalledError('SourceKindNotAllowed', `source objects of kind ${what} are not allowed, only ${allowed}`)
  }
  if (policy.noCrossNamespaceRefs && id.namespace !== namespace) {
    const what = `${id.kind}/${id.namespace}/${id.name}`
    throw new StalledError('AccessDenied', `can't access '${what}', cross-namespace references have been blocked`)
  }
}

function candidates(artifacts: Indexer<Artifact>, id: SourceId): Artifact[] {
  if (!isArtifact(id)) return artifacts.by(ownerIndex, sourceKey(id))
  // The index also has what this Artifact owns, e.g. the output of an action on it.
  const artifact = artifacts.get(`${id.namespace}/${id.name}`)
  return artifact ? [artifact] : []
}

function isArtifact({ group, kind }: SourceKind): boolean {
  return group === ArtifactKind.group && kind === ArtifactKind.kind
}

function pickOne(id: SourceId, found: Artifact[]): Artifact {
  const key = sourceKey(id)
  const live = found.filter((artifact) => !artifact.metadata.deletionTimestamp)
  const [first, second] = live
  if (!first) {
    const why = found.length ? ', the one there was is being deleted' : ''
    throw new WaitingError('ArtifactNotFound', `no artifact found for ${key}${why}`)
  }
  if (!second) return first
  const names = live.map((artifact) => artifact.metadata.name).toSorted()
  const list = names.slice(0, maxListed).join(', ') + (names.length > maxListed ? ', …' : '')
  // An owner that was deleted and made again leaves its Artifact to the garbage collector for a moment: theirs must not be taken for its own.
  const uids = new Set(live.flatMap((artifact) => ownerUids(artifact, id)))
  if (uids.size > 1)
    throw new WaitingError('OwnerReplaced', `${key} was replaced, waiting until one artifact is left of ${list}`)
  throw new StalledError('AmbiguousArtifact', `several artifacts found for ${key}: ${list}`)
}

function ownerUids(artifact: Artifact, id: SourceId): string[] {
  const owners = artifact.metadata.ownerReferences ?? []
  return owners
    .filter(({ apiVersion, kind, name }) => groupOf(apiVersion) === id.group && kind === id.kind && name === id.name)
    .map((owner) => owner.uid)
}

/** A half-written or forged Artifact is refused here; whoever writes it can mend it, and the watch tells us. */
function describe({ metadata, spec }: Artifact): ResolvedArtifact {
  const refuse = (why: string) => new WaitingError('ArtifactInvalid', `artifact ${metadata.name}: ${why}`)
  if (!spec) throw refuse('it has no spec')
  if (!spec.revision) throw refuse('spec.revision is missing')
  if (!spec.digest) throw refuse('spec.digest is missing, so its content cannot be verified')
  try {
    parseDigest(spec.digest)
  } catch (err) {
    throw refuse(`spec.digest: ${messageOf(err)}`)
  }
  parseArtifactUrl(spec.url)
  if (spec.size !== undefined && !(Number.isSafeInteger(spec.size) && spec.size >= 0))
    throw refuse('spec.size is not a number of bytes')
  return {
    namespace: metadata.namespace ?? '',
    name: metadata.name,
    revision: spec.revision,
    digest: spec.digest,
    url: spec.url,
    ...(spec.size !== undefined && { size: spec.size }),
    lastUpdateTime: spec.lastUpdateTime,
    metadata: { ...spec.metadata },
  }
}
