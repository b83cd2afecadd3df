import { ReconcileError } from '../runtime/errors.ts'

/** An expected failure of a Git operation on `shownUrl`, in the words that users of Flux look for. */
export function gitFailure(
  shownUrl: string,
  detail: string,
  options: { cause?: unknown; retryAfterMs?: number | undefined } = {},
): ReconcileError {
  const message = `failed to checkout and determine revision: unable to clone '${shownUrl}': ${detail}`
  return new ReconcileError('GitOperationFailed', message, options)
}

/** What is thrown when `signal` ended a Git operation: its own reason when that says enough, else a ReconcileError. */
export function aborted(shownUrl: string, signal: AbortSignal): ReconcileError {
  const reason: unknown = signal.reason
  if (reason instanceof ReconcileError) return reason
  const timedOut = reason instanceof Error && reason.name === 'TimeoutError'
  return gitFailure(shownUrl, timedOut ? 'timed out' : 'aborted', { cause: reason })
}

// eslint-disable-next-line no-control-regex -- escape sequences are what has to go
const escapeSequence = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]+[0-~]|[@-_])/g

/**
 * Makes text from the other side fit for a condition or a log: no escape sequences or control characters, no userinfo of a URL, none of the
 * `secrets`, at most `maxLength` characters.
 */
export function sanitize(text: string, secrets: readonly string[] = [], maxLength = 500): string {
  let clean = text.replace(escapeSequence, '')
  for (const secret of secrets) if (secret) clean = clean.replaceAll(secret, '***')
  clean = clean
    .replace(/:\/\/[^/\s@]*@/g, '://')
    .replace(/\p{C}+/gu, ' ')
    .replace(/\s+/g, ' ')
    .trim()
  return clean.length > maxLength ? `${clean.slice(0, maxLength)}...` : clean
}
