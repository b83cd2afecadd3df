import { type Dispatcher, request } from 'undici'
import { untilAborted } from './shared-calls.ts'

type Options = Omit<NonNullable<Parameters<typeof request<null>>[1]>, 'signal'>

/**
 * undici's `request` that `signal` ends. The signal is not handed on: a stream of HTTP/2 that is cancelled in the moment it is opened is forgotten by undici but not
 * by Node, and the end of its connection then ends the process (undici 8.12, Node 26.10). Who is aborted stops waiting at once; an answer that comes later is
 * dropped, and one that has begun is cut off.
 */
export async function abortableRequest(
  url: string | URL,
  options: Options,
  signal: AbortSignal | undefined,
): Promise<Dispatcher.ResponseData> {
  if (!signal) return request(url, options)
  signal.throwIfAborted()
  const pending = request(url, options)
  try {
    const response = await untilAborted(pending, signal)
    signal.throwIfAborted() // in the moment between
    const { body } = response
    const end = () => drop(body, signal.reason)
    signal.addEventListener('abort', end, { once: true })
    body.once('close', () => signal.removeEventListener('abort', end))
    return response
  } catch (err) {
    pending.then(({ body }) => drop(body)).catch(() => {}) // nobody waits any more
    throw err
  }
}

/** Whoever reads the body gets the reason; where nobody does, it is nobody's error. */
function drop(body: Dispatcher.ResponseData['body'], reason?: unknown): void {
  body.on('error', () => {}).destroy(reason instanceof Error ? reason : new Error('aborted'))
}
