import { transportKey } from '../../source/transport/dispatcher.ts'
import type { Transport } from '../../source/transport/transport.ts'

/**
 * Until when (ms since 1970) a host, as `host:port`, wants no requests of anybody. What came through a proxy, or from whom an authority of the user's
 * vouches for, binds those alone who ask in the same way: whoever runs these could say it in the name of any host.
 */
const waits: Map<string, number> = new Map()
const maxHosts = 10_000
const maxRetryAfterMs = 3_600_000

/** What of an answer matters here. */
export interface Answered {
  statusCode: number
  headers: Record<string, string | string[] | undefined>
}

/**
 * Remembers what an answer of the host of `url` says about the next request: with 429 or 503 and `Retry-After` nobody sends it one before that time. Returns the
 * wait in ms, undefined where nothing is said.
 */
export function noteRetryAfter(
  url: string,
  transport: Transport,
  { statusCode, headers }: Answered,
): number | undefined {
  const header = headers['retry-after']
  const waitMs = retryAfterMs((Array.isArray(header) ? header[0] : header) ?? '')
  if (waitMs && (statusCode === 429 || statusCode === 503)) {
    const now = Date.now()
    if (waits.size >= maxHosts) for (const [host, untilMs] of waits) if (untilMs <= now) waits.delete(host)
    if (waits.size < maxHosts) waits.set(keyOf(url, transport), now + waitMs)
  }
  return waitMs
}

/** Throws what `failed` makes of the reason and of the ms that are left, as long as the host of `url` has asked to be left alone. */
export function refuseWhileAskedToWait(
  url: string,
  transport: Transport,
  failed: (why: string, retryAfterMs: number) => Error,
): void {
  if (waits.size === 0) return
  const key = keyOf(url, transport)
  const leftMs = (waits.get(key) ?? 0) - Date.now()
  if (leftMs > 0)
    throw failed(`too many requests: '${new URL(url).host}' wants no more for ${Math.ceil(leftMs / 1000)}s`, leftMs)
  waits.delete(key)
}

function keyOf(url: string, transport: Transport): string {
  return `${new URL(url).host} ${transportKey(transport)}`
}

/** RFC 9110 §10.2.3: seconds or a date. Never more than an hour, so that a slip of the server does not stop an object for good. */
function retryAfterMs(header: string): number | undefined {
  if (header === '') return undefined
  const ms = /^\d{1,9}$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now()
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), maxRetryAfterMs)
}
