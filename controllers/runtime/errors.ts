/**
 * A failure that was to be expected: the world, not this program, is at fault. Retried with exponential backoff.
 * `reason` is CamelCase and becomes the reason of the condition, of the event and the label of the metric.
 */
export class ReconcileError extends Error {
  readonly reason: string
  /** Not before this many ms from now, when the other side said so (`Retry-After`). */
  readonly retryAfterMs: number | undefined
  /** The type of the condition that says so, where it is not the usual one of the kind. */
  readonly condition: string | undefined
  constructor(
    reason: string,
    message: string,
    options: { cause?: unknown; retryAfterMs?: number | undefined; condition?: string } = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined)
    this.name = new.target.name
    this.reason = reason
    this.retryAfterMs = options.retryAfterMs
    this.condition = options.condition
  }
}

/** Something that this object needs is not there yet. Retried after a fixed time, without noise. */
export class WaitingError extends ReconcileError {}

/** Only a change of the spec (or a poke by annotation) can help. Not retried; the object becomes Stalled. */
export class StalledError extends ReconcileError {}

/** What a thrown value says, whatever was thrown. */
export function messageOf(err: unknown): string {
  return err instanceof Error ? err.message : String(err)
}
