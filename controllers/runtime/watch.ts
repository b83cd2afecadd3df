import { ApiError } from './client.ts'
import type { KubeObject } from './kind.ts'

/** One line of a watch. */
export interface WatchEvent {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK'
  object: KubeObject
}

/** A watch from which nothing came although the server should have ended it by now. */
export class SilentWatchError extends Error {
  override readonly name = 'SilentWatchError'
}

/** Larger than any object etcd takes (1.5 MiB) with room for JSON's escapes. */
const maxLineBytes = 32 * 1024 * 1024

/**
 * The events of a watch's body. Ends when the server ends it. Throws SilentWatchError after `silenceMs` without a byte, ApiError on
 * an ERROR event (410 Gone and the like), and an Error on a line that is cut off or no event.
 */
export async function* readWatch(
  body: AsyncIterable<Buffer>,
  silenceMs: number,
  abort: AbortController,
): AsyncGenerator<WatchEvent> {
  const silent = new SilentWatchError(`no byte for ${silenceMs} ms`)
  const timer = setTimeout(() => abort.abort(silent), silenceMs)
  try {
    for await (const line of lines(body, () => timer.refresh())) yield parseEvent(line)
  } catch (err) {
    throw abort.signal.reason === silent ? silent : err
  } finally {
    clearTimeout(timer)
  }
}

async function* lines(body: AsyncIterable<Buffer>, onBytes: () => void): AsyncGenerator<string> {
  let pending: Buffer[] = []
  let pendingBytes = 0
  for await (const chunk of body) {
    onBytes()
    let start = 0
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      pending.push(chunk.subarray(start, end))
      yield Buffer.concat(pending).toString('utf8')
      pending = []
      pendingBytes = 0
      start = end + 1
    }
    if (start === chunk.length) continue
    pending.push(chunk.subarray(start))
    pendingBytes += chunk.length - start
    if (pendingBytes > maxLineBytes) throw new Error(`a watch event passes ${maxLineBytes} bytes`)
  }
  // An event cut in two: taking it as the end would lose it, resuming from the last whole one brings it again.
  if (pendingBytes > 0) throw new Error('the watch ended within a line')
}

function parseEvent(line: string): WatchEvent {
  const event = JSON.parse(line) as {
    type: string
    object: KubeObject & { code?: number; reason?: string; message?: string }
  }
  if (event.type === 'ERROR') {
    const { code = 500, reason = 'InternalError', message = 'watch error' } = event.object
    throw new ApiError(code, reason, message)
  }
  if (!event.object?.metadata?.resourceVersion) throw new Error('a watch event without a resource version')
  return event as WatchEvent
}
