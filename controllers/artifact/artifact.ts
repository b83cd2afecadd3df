import { createHash } from 'node:crypto'
import type { Client } from '../runtime/client.ts'
import type { Informer, InformerOptions } from '../runtime/informer.ts'
import { apiVersionOf, type Kind, type KubeObject, objectKeyOf } from '../runtime/kind.ts'
import { equal, mergePatch } from '../runtime/merge-patch.ts'
import { controllerReference, ownerKeys, referenceKey } from '../runtime/owners.ts'
import type { StoredArtifact } from './stored.ts'
import { type Artifact, ArtifactKind } from './types.ts'

/** `status.artifact` of a source, as stock Flux deployers read it. */
export interface ServedArtifact extends Omit<StoredArtifact, 'size'> {
  url: string
  /** Bytes; optional on the wire. */
  size?: number
}

/** The index over Artifacts by every owner and by the Artifact itself. Keys: `group/kind/namespace/name`. */
export const ownerIndex = 'owner'

/** How every controller of a process looks at Artifacts, so that they share one informer. */
export const artifactInformerOptions: InformerOptions<Artifact> = {
  indexes: { [ownerIndex]: (artifact) => [selfKey(artifact), ...ownerKeys(artifact)] },
  transform: ({ metadata, spec }) => ({
    metadata: keepOnly(metadata, [
      'name',
      'namespace',
      'uid',
      'resourceVersion',
      'generation',
      'deletionTimestamp',
      'labels',
      'annotations',
      'ownerReferences',
    ]),
    ...(spec && { spec }),
  }),
}

function selfKey(artifact: Artifact): string {
  return referenceKey(ArtifactKind.group, ArtifactKind.kind, artifact.metadata.namespace ?? '', artifact.metadata.name)
}

function keepOnly<T extends object, K extends keyof T>(object: T, keys: readonly K[]): T {
  return Object.fromEntries(keys.filter((key) => object[key] !== undefined).map((key) => [key, object[key]])) as T
}

const maxNameLength = 253

/** Groups whose kinds have names and folders of their own without the group in it. */
function isToolkit(group: string): boolean {
  return group.endsWith('.toolkit.fluxcd.io')
}

function shortHash(...parts: string[]): string {
  return createHash('sha256').update(parts.join('/')).digest('hex').slice(0, 8)
}

/**
 * The name of a source's Artifact: `<kind>-<namespace>-<name>` in lower case. A short hash follows for groups outside the toolkit's, whose
 * kinds may be called the same, and where the name would pass 253 characters.
 */
export function artifactName(kind: Kind, source: KubeObject): string {
  const { namespace = '', name } = source.metadata
  const plain = `${kind.kind}-${namespace}-${name}`.toLowerCase()
  if (isToolkit(kind.group) && plain.length <= maxNameLength) return plain
  const hash = shortHash(kind.group, kind.kind, namespace, name)
  return `${plain.slice(0, maxNameLength - hash.length - 1).replace(/[-.]+$/, '')}-${hash}`
}

/** The folder of a source's files: `<kind>/<namespace>/<name>`, with the group behind the kind outside the toolkit's groups. */
export function artifactFolder(kind: Kind, source: KubeObject): string {
  return `${kindFolder(kind)}/${source.metadata.namespace ?? ''}/${source.metadata.name}`
}

/** The folder of all files of a kind. */
export function kindFolder(kind: Kind): string {
  const lower = kind.kind.toLowerCase()
  return isToolkit(kind.group) ? lower : `${lower}.${kind.group}`
}

/** The Artifact of a source as the cache has it, whatever its owner reference says: its name is its identity. */
export function cachedArtifact(artifacts: Informer<Artifact>, kind: Kind, source: KubeObject): Artifact | undefined {
  return artifacts.cache.get(`${source.metadata.namespace ?? ''}/${artifactName(kind, source)}`)
}

/** Whether an Artifact says exactly what `served` says and is controlled by `source`. */
export function isCurrent(artifact: Artifact | undefined, source: KubeObject, served: ServedArtifact): boolean {
  const spec = artifact?.spec
  if (!spec || artifact.metadata.deletionTimestamp) return false
  const owned = artifact.metadata.ownerReferences?.some((owner) => owner.uid === source.metadata.uid)
  return Boolean(owned) && equal(spec, specOf(served))
}

/**
 * Creates or updates the Artifact of a source, with its owner reference in the same call. `known` is what was read before: the write is refused
 * with 409 when the Artifact has changed since, so that a leader that has lost its lease unnoticed cannot undo what its successor wrote.
 */
export async function applyArtifact(
  client: Client,
  kind: Kind,
  source: KubeObject,
  served: ServedArtifact,
  known: Artifact | undefined,
  signal: AbortSignal,
): Promise<Artifact> {
  const wanted: Artifact = {
    apiVersion: apiVersionOf(ArtifactKind),
    kind: ArtifactKind.kind,
    metadata: {
      name: artifactName(kind, source),
      namespace: source.metadata.namespace ?? '',
      ownerReferences: [controllerReference(kind, source)],
      ...(known?.metadata.resourceVersion && { resourceVersion: known.metadata.resourceVersion }),
    },
    spec: specOf(served),
  }
  const applied = await client.apply(ArtifactKind, wanted, signal)
  if (isCurrent(applied, source, served)) return applied
  // Somebody else has added fields that are not ours to apply; the spec is ours as a whole.
  return client.patch(
    ArtifactKind,
    objectKeyOf(applied),
    { spec: mergePatch(applied.spec, wanted.spec) ?? {} },
    { signal },
  )
}

function specOf({
  url,
  revision,
  digest,
  size,
  lastUpdateTime,
  metadata,
}: ServedArtifact): NonNullable<Artifact['spec']> {
  return { url, revision, digest, lastUpdateTime, ...(size !== undefined && { size }), ...(metadata && { metadata }) }
}
