import {
  deleteCondition,
  isTrue,
  markFalse,
  markReconciling,
  markStalled,
  markTrue,
  markUnknown,
  ReadyCondition,
  Reason,
  ReconcilingCondition,
  StalledCondition,
} from '../runtime/conditions.ts'
import { ApiError } from '../runtime/client.ts'
import { messageOf, ReconcileError, StalledError } from '../runtime/errors.ts'
import type { SourceObject } from './source.ts'

/** Condition types of sources beside those of kstatus; names are Flux's. */
export const ArtifactInStorage = 'ArtifactInStorage'
export const ArtifactOutdated = 'ArtifactOutdated'
export const FetchFailed = 'FetchFailed'
export const StorageOperationFailed = 'StorageOperationFailed'
export const SourceVerified = 'SourceVerified'

/** Conditions that are there only while something is wrong. */
const failures = [FetchFailed, StorageOperationFailed]

/** Reasons that say our own storage failed, not the fetch. */
const storageReasons: ReadonlySet<string> = new Set([
  'StorageOperationFailed',
  'DirectoryCreationFailed',
  'StatOperationFailed',
  'ReadOperationFailed',
  'AcquireLockFailed',
  'InvalidPath',
  'ArchiveOperationFailed',
  'SymlinkUpdateFailed',
])

export function hasFailed(obj: SourceObject): boolean {
  return isTrue(obj, FetchFailed) || isTrue(obj, StorageOperationFailed) || isTrue(obj, StalledCondition)
}

/** A pass has begun on a spec that was not dealt with yet. */
export function markNewGeneration(obj: SourceObject): void {
  const message = `processing object: new generation ${obj.status?.observedGeneration ?? -1} -> ${obj.metadata.generation ?? 0}`
  markReconciling(obj, Reason.Progressing, message)
  markUnknown(obj, ReadyCondition, Reason.Progressing, message)
}

/** The stored file is not there (any more): `why` completes "building artifact". */
export function markBuilding(obj: SourceObject, why: string): void {
  const message = why ? `building artifact: ${why}` : 'building artifact'
  deleteCondition(obj, ArtifactInStorage)
  markReconciling(obj, Reason.Progressing, message)
  markUnknown(obj, ReadyCondition, Reason.Progressing, message)
}

/** Upstream has something newer than what is stored. */
export function markOutdated(obj: SourceObject, revision: string): void {
  if (obj.status?.artifact) markTrue(obj, ArtifactOutdated, 'NewRevision', `new upstream revision '${revision}'`)
  markReconciling(obj, Reason.Progressing, `building artifact: new upstream revision '${revision}'`)
}

/** What is stored and served is what upstream has. */
export function markStored(obj: SourceObject, revision: string): void {
  const message = `stored artifact for revision '${revision}'`
  deleteCondition(obj, ...failures, ArtifactOutdated, ReconcilingCondition, StalledCondition)
  markTrue(obj, ArtifactInStorage, Reason.Succeeded, message)
  markTrue(obj, ReadyCondition, Reason.Succeeded, message)
}

/** The signature was checked (`message` says which), or none is asked for. */
export function markVerified(obj: SourceObject, message: string | undefined): void {
  if (message === undefined) deleteCondition(obj, SourceVerified)
  else markTrue(obj, SourceVerified, Reason.Succeeded, message)
}

/** The outcome of a pass that threw. What is stored stays and is served. */
export function markFailed(obj: SourceObject, err: unknown): { reason: string; message: string } {
  const reason = err instanceof ReconcileError ? err.reason : Reason.Failed
  const message = messageOf(err)
  const type = storageReasons.has(reason) ? StorageOperationFailed : FetchFailed
  deleteCondition(obj, ...failures.filter((other) => other !== type))
  if (err instanceof ApiError) deleteCondition(obj, ...failures)
  else if (reason === 'VerificationError') markFalse(obj, SourceVerified, reason, message)
  else markTrue(obj, type, reason, message)
  markFalse(obj, ReadyCondition, reason, message)
  if (err instanceof StalledError) markStalled(obj, reason, message)
  else markReconciling(obj, Reason.ProgressingWithRetry, message)
  return { reason, message }
}
