import { setTimeout as delay } from 'node:timers/promises'

/**
 * Polls until `check` neither throws nor gives false, and resolves with what it gave. Throws the last error after `timeoutMs`: a limit against
 * hanging, not an assertion about speed. For tests.
 */
export async function eventually<R>(
  check: () => R | Promise<R>,
  timeoutMs = 60_000,
  pauseMs = 50,
): Promise<Exclude<R, false | undefined>> {
  const deadline = performance.now() + timeoutMs
  for (;;) {
    try {
      const result = await check()
      if (result !== false && result !== undefined) return result as Exclude<R, false | undefined>
      if (performance.now() > deadline) throw new Error(`still ${String(result)} after ${timeoutMs} ms`)
    } catch (err) {
      if (performance.now() > deadline) throw err
    }
    await delay(pauseMs)
  }
}

/** Repeats assertions until none of them throws. For tests. */
export async function eventuallyHolds(assertions: () => void | Promise<void>, timeoutMs = 60_000): Promise<void> {
  await eventually(async () => {
    await assertions()
    return true
  }, timeoutMs)
}
