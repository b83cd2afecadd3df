// Generated from crds/artifacts.yaml by `npm run generate`. Change it there.
import type { Condition, Kind, KubeObject } from '../runtime/kind.ts'

/** Bytes that a source offers, and where to get them. Consumers find it by its owner reference, which names the source, and need to know nothing else about the source. */
export interface Artifact extends KubeObject {
  spec?: ArtifactSpec
  status?: ArtifactStatus
}

/** Where the API serves it. */
export const ArtifactKind: Kind<Artifact> = {
  group: 'openfluxcd.ocm.software',
  version: 'v1alpha1',
  kind: 'Artifact',
  plural: 'artifacts',
}

/** The present content of the source. Only the source's controller writes it. */
export interface ArtifactSpec {
  /** Address of the file inside the cluster, a gzip-compressed tar archive. */
  url: string
  /** Where upstream stood, such as `main@sha1:<commit>`. */
  revision: string
  /** Checksum of the file as `<algorithm>:<hex>`. Consumers use nothing that does not match it. */
  digest?: string
  /** Length of the file in bytes. */
  size?: number
  /** When the file was stored. */
  lastUpdateTime: string
  /** Further facts about the content. */
  metadata?: Record<string, string>
}

/** What the source's controller reports about the file. */
export interface ArtifactStatus {
  /** Generation of the spec that the status is about. */
  observedGeneration?: number
  /** State of the object, one entry per aspect; `Ready` sums them up. */
  conditions?: Condition[]
}
