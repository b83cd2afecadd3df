import {
  deleteCondition,
  getCondition,
  isTrue,
  markFalse,
  markReconciling,
  markStalled,
  markTrue,
  ReadyCondition,
  Reason,
  ReconcilingCondition,
  StalledCondition,
} from '../controllers/runtime/conditions.ts'
import type { Context } from '../controllers/runtime/context.ts'
import { messageOf, ReconcileError, StalledError, WaitingError } from '../controllers/runtime/errors.ts'
import type { Kind } from '../controllers/runtime/kind.ts'
import type { Trigger } from './applied.ts'
import type { ResolvedArtifact } from './resolve.ts'
import type { ConsumerObject } from './types.ts'

const succeeded = 'ReconciliationSucceeded'

/** Puts a success into status and conditions; the event is news unless only the interval has asked for the pass. */
export function tellApplied(
  before: ConsumerObject,
  obj: ConsumerObject,
  outcome: { artifact: ResolvedArtifact; trigger: Trigger; message: string | undefined },
  kind: Kind,
  ctx: Context,
): void {
  const { artifact, trigger, message = appliedMessage(artifact) } = outcome
  markApplied(obj, artifact, message)
  ctx.log.info({ revision: artifact.revision, digest: artifact.digest, trigger }, message)
  const severity = trigger === 'interval' && isTrue(before, ReadyCondition) ? 'trace' : 'info'
  ctx.events.emit(obj, { severity, reason: succeeded, message, metadata: revisionOf(kind, artifact) })
}

/** What is there has been applied already, maybe under another revision. Worth an event only where it ends a failure. */
export function tellUnchanged(
  before: ConsumerObject,
  obj: ConsumerObject,
  artifact: ResolvedArtifact,
  kind: Kind,
  ctx: Context,
): void {
  const ready = getCondition(before, ReadyCondition)
  const keep = ready?.status === 'True' && before.status?.lastAppliedRevision === artifact.revision
  const message = keep ? ready.message : appliedMessage(artifact)
  markApplied(obj, artifact, message)
  ctx.log.debug({ revision: artifact.revision, digest: artifact.digest }, 'nothing has changed')
  if (ready?.status !== 'True')
    ctx.events.emit(obj, { severity: 'info', reason: succeeded, message, metadata: revisionOf(kind, artifact) })
}

/** Puts a failure into conditions and an event. What was applied before stays. */
export function tellFailure(before: ConsumerObject, obj: ConsumerObject, err: unknown, ctx: Context): void {
  // A conflict says that somebody else wrote meanwhile, nothing about the object.
  if (err instanceof ReconcileError && err.reason === 'Conflict') return
  const reason = err instanceof ReconcileError ? err.reason : Reason.Failed
  const message = messageOf(err)
  markFalse(obj, ReadyCondition, reason, message)
  if (err instanceof StalledError) {
    markStalled(obj, reason, message)
    observe(obj)
  } else markReconciling(obj, Reason.ProgressingWithRetry, message)
  const waiting = err instanceof WaitingError
  const was = getCondition(before, ReadyCondition)
  // One wait is one piece of news, however often it is looked whether it is over.
  if (waiting && was?.reason === reason && was.message === message) return
  ctx.events.emit(obj, { severity: waiting ? 'info' : 'error', reason, message })
}

function markApplied(obj: ConsumerObject, { revision, digest }: ResolvedArtifact, message: string): void {
  deleteCondition(obj, ReconcilingCondition, StalledCondition)
  markTrue(obj, ReadyCondition, succeeded, message)
  obj.status = { ...obj.status, lastAppliedRevision: revision, lastAppliedDigest: digest }
  observe(obj)
}

/** The spec has been dealt with, for good or ill. Not set while a retry is due. */
function observe(obj: ConsumerObject): void {
  obj.status = { ...obj.status, observedGeneration: obj.metadata.generation ?? 0 }
}

function appliedMessage({ revision }: ResolvedArtifact): string {
  return `applied revision ${revision}`
}

/** What Flux's alerts read from an event. */
function revisionOf(kind: Kind, { revision, digest }: ResolvedArtifact): Record<string, string> {
  return { [`${kind.group}/revision`]: revision, [`${kind.group}/digest`]: digest }
}
