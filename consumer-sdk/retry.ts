import type { ReconcileError } from '../controllers/runtime/errors.ts'
import { sleep } from '../controllers/runtime/sleep.ts'

/** A try that failed but that another one may follow. */
export class RetryableFailure extends Error {
  /** What the caller gets when there is no further try. */
  readonly failure: ReconcileError
  /** The most further tries after this kind of failure. */
  readonly maxRetries: number
  constructor(failure: ReconcileError, maxRetries = Infinity) {
    super(failure.message)
    this.failure = failure
    this.maxRetries = maxRetries
  }
}

export interface RetryPolicy {
  /** Tries after the first one. */
  retries: number
  /** The first delay; it doubles with each try up to `maxDelayMs`. Defaults to 500. */
  minDelayMs?: number | undefined
  /** Defaults to 5000; also the longest `Retry-After` that is waited for here, where a worker is kept busy by it. */
  maxDelayMs?: number | undefined
}

/** Runs `attempt` until it succeeds, fails for good, or the policy is used up. Never waits once `signal` has aborted. */
export async function withRetries<R>(policy: RetryPolicy, signal: AbortSignal, attempt: () => Promise<R>): Promise<R> {
  const { minDelayMs = 500, maxDelayMs = 5_000 } = policy
  for (let retry = 0; ; retry++) {
    try {
      return await attempt()
    } catch (err) {
      if (!(err instanceof RetryableFailure)) throw err
      const { failure, maxRetries } = err
      const askedMs = failure.retryAfterMs ?? 0
      if (retry >= Math.min(policy.retries, maxRetries) || askedMs > maxDelayMs) throw failure
      const backoffMs = Math.min(minDelayMs * 2 ** Math.min(retry, 30), maxDelayMs) * (0.75 + Math.random() / 4)
      await sleep(Math.max(backoffMs, askedMs), signal)
      signal.throwIfAborted()
    }
  }
}
