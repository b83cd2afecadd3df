import type { Context } from './context.ts'
import { ReconcileError } from './errors.ts'

/** The longest that a timer of Node holds: 24 days, in whole ms. */
const maxTimerMs = 2 ** 31 - 1

/**
 * Runs `work` with a signal that also aborts after `timeoutMs`. Throws ReconcileError that names `field` when that is what ended it, with the reason
 * of the failure it caused, if that had one.
 */
export async function withTimeout<R, C extends Context>(
  field: string,
  timeoutMs: number,
  ctx: C,
  work: (bounded: C) => Promise<R>,
): Promise<R> {
  const timeout = AbortSignal.timeout(Math.min(Math.ceil(timeoutMs), maxTimerMs))
  try {
    return await work({ ...ctx, signal: AbortSignal.any([ctx.signal, timeout]) })
  } catch (err) {
    if (!timeout.aborted || ctx.signal.aborted) throw err
    const reason = err instanceof ReconcileError ? err.reason : 'Timeout'
    throw new ReconcileError(reason, `timed out after ${field} (${timeoutMs / 1000}s)`, { cause: err })
  }
}
