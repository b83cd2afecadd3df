import { setImmediate as nextTurn } from 'node:timers/promises'

const sliceMs = 10

/** To be awaited in every round of a long loop. */
export type Pace = () => Promise<void> | undefined

/** Returns a function to await in long loops: it lets the event loop breathe every 10 ms and throws the signal's reason once that is aborted. */
export function makePacer(signal?: AbortSignal): Pace {
  let sliceStart = performance.now()
  return () => {
    if (performance.now() - sliceStart < sliceMs) return undefined
    return nextTurn().then(() => {
      sliceStart = performance.now()
      signal?.throwIfAborted()
    })
  }
}

/** The promise, or the signal's reason if that comes first. The promise's own late failure is then nobody's. */
export async function orAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise
  promise.catch(() => {}) // after an abort nobody awaits it any more
  signal.throwIfAborted()
  const { promise: aborted, reject } = Promise.withResolvers<never>()
  const onAbort = (): void => reject(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([promise, aborted])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}
