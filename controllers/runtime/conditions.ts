import type { Condition, ConditionedObject } from './kind.ts'

/** Types that kstatus knows; Ready is the summary, the others are present only while they are True. */
export const ReadyCondition = 'Ready'
export const ReconcilingCondition = 'Reconciling'
export const StalledCondition = 'Stalled'

/** Reasons that every kind shares. */
export const Reason = {
  Succeeded: 'Succeeded',
  Failed: 'Failed',
  Progressing: 'Progressing',
  ProgressingWithRetry: 'ProgressingWithRetry',
} as const

/** The longest message a condition may have (`metav1.Condition`). */
const maxMessage = 32768

export function getCondition(obj: ConditionedObject, type: string): Condition | undefined {
  return obj.status?.conditions?.find((condition) => condition.type === type)
}

export function isTrue(obj: ConditionedObject, type: string): boolean {
  return getCondition(obj, type)?.status === 'True'
}

/** Sets a condition; `lastTransitionTime` moves only when status, reason or message differ from what is there. */
export function setCondition(
  obj: ConditionedObject,
  type: string,
  status: Condition['status'],
  reason: string,
  message: string,
): void {
  const text = message.length > maxMessage ? `${message.slice(0, maxMessage - 3)}...` : message
  const old = getCondition(obj, type)
  const same = old && old.status === status && old.reason === reason && old.message === text
  const condition: Condition = {
    type,
    status,
    reason,
    message: text,
    lastTransitionTime: same ? old.lastTransitionTime : new Date().toISOString().replace(/\.\d+Z$/, 'Z'),
    ...(obj.metadata.generation !== undefined && { observedGeneration: obj.metadata.generation }),
  }
  const others = (obj.status?.conditions ?? []).filter((other) => other.type !== type)
  obj.status = { ...obj.status, conditions: [...others, condition].sort(byImportance) }
}

export function markTrue(obj: ConditionedObject, type: string, reason: string, message: string): void {
  setCondition(obj, type, 'True', reason, message)
}

export function markFalse(obj: ConditionedObject, type: string, reason: string, message: string): void {
  setCondition(obj, type, 'False', reason, message)
}

export function markUnknown(obj: ConditionedObject, type: string, reason: string, message: string): void {
  setCondition(obj, type, 'Unknown', reason, message)
}

export function deleteCondition(obj: ConditionedObject, ...types: string[]): void {
  if (!obj.status?.conditions) return
  obj.status = {
    ...obj.status,
    conditions: obj.status.conditions.filter((condition) => !types.includes(condition.type)),
  }
}

/** Work goes on; it excludes Stalled (kstatus). */
export function markReconciling(obj: ConditionedObject, reason: string, message: string): void {
  deleteCondition(obj, StalledCondition)
  markTrue(obj, ReconcilingCondition, reason, message)
}

/** Only a change of the spec helps; it excludes Reconciling (kstatus). */
export function markStalled(obj: ConditionedObject, reason: string, message: string): void {
  deleteCondition(obj, ReconcilingCondition)
  markTrue(obj, StalledCondition, reason, message)
}

/** The order in which Flux lists them, so that `kubectl describe` reads the same. */
const first = [StalledCondition, ReconcilingCondition, ReadyCondition]

function byImportance(a: Condition, b: Condition): number {
  const rank = (condition: Condition) => (first.includes(condition.type) ? first.indexOf(condition.type) : first.length)
  return rank(a) - rank(b) || (b.observedGeneration ?? 0) - (a.observedGeneration ?? 0) || (a.type < b.type ? -1 : 1)
}
