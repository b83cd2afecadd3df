import { setTimeout as sleep } from 'node:timers/promises'

/** Repeats `check` until it does not throw, and resolves with its result; after `timeoutMs` the last error is thrown. */
export async function eventually<T>(check: () => T | Promise<T>, timeoutMs = 30_000, pauseMs = 50): Promise<T> {
  const deadline = performance.now() + timeoutMs
  for (;;) {
    try {
      return await check()
    } catch (err) {
      if (performance.now() > deadline) throw err
    }
    await sleep(pauseMs)
  }
}
