import {
  deleteCondition,
  getCondition,
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

/** Conditions of every kind that are there only while something is wrong; kinds may add their own (`Source.failureConditions`). */
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

/** Whether the last pass has failed. `own` are the failure conditions of this kind alone. */
export function hasFailed(obj: SourceObject, own: readonly string[] = []): boolean {
  const unverified = getCondition(obj, SourceVerified)?.status === 'False'
  return unverified || [...failures, ...own, StalledCondition].some((type) => isTrue(obj, type))
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

/** What is stored is not what it should be; `why` says what has changed. */
export function markOutdated(obj: SourceObject, why: { reason: string; message: string }): void {
  if (obj.status?.artifact) markTrue(obj, ArtifactOutdated, why.reason, why.message)
  markReconciling(obj, Reason.Progressing, `building artifact: ${why.message}`)
}

/** What is stored and served is what upstream has. `own` are the failure conditions of this kind alone. */
export function markStored(obj: SourceObject, revision: string, own: readonly string[] = []): void {
  const message = `stored artifact for revision '${revision}'`
  deleteCondition(obj, ...failures, ...own, ArtifactOutdated, ReconcilingCondition, StalledCondition)
  markTrue(obj, ArtifactInStorage, Reason.Succeeded, message)
  markTrue(obj, ReadyCondition, Reason.Succeeded, message)
}

/** The signature was checked (`message` says which), or none is asked for. */
export function markVerified(obj: SourceObject, message: string | undefined): void {
  if (message === undefined) deleteCondition(obj, SourceVerified)
  else markTrue(obj, SourceVerified, Reason.Succeeded, message)
}

/** The outcome of a pass that threw. What is stored stays and is served. `own` are the failure conditions of this kind alone. */
export function markFailed(
  obj: SourceObject,
  err: unknown,
  own: readonly string[] = [],
): { reason: string; message: string } {
  const reason = err instanceof ReconcileError ? err.reason : Reason.Failed
  const message = messageOf(err)
  const type = failedCondition(err, reason)
  deleteCondition(obj, ...[...failures, ...own].filter((other) => other !== type))
  if (type === SourceVerified) markFalse(obj, type, reason, message)
  else if (type) markTrue(obj, type, reason, message)
  markFalse(obj, ReadyCondition, reason, message)
  if (err instanceof StalledError) markStalled(obj, reason, message)
  else markReconciling(obj, Reason.ProgressingWithRetry, message)
  return { reason, message }
}

/** The condition that tells of a failure; none where it was the API server's, which says nothing about the source. */
function failedCondition(err: unknown, reason: string): string | undefined {
  if (err instanceof ApiError) return undefined
  if (err instanceof ReconcileError && err.condition) return err.condition
  if (reason === 'VerificationError') return SourceVerified
  return storageReasons.has(reason) ? StorageOperationFailed : FetchFailed
}
