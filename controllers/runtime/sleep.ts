import { setTimeout as delay } from 'node:timers/promises'

/** Waits; returns early, without an error, when `signal` aborts. */
export async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => undefined) // the only rejection is the abort
}

/** Resolves when `signal` aborts, at once where it has. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
