import { request, type Dispatcher } from 'undici'
import { messageOf, type ReconcileError } from '../../runtime/errors.ts'
import { dispatcherFor, idleTimeoutMs } from '../../source/transport/dispatcher.ts'
import type { Transport } from '../../source/transport/transport.ts'
import type { Access } from '../access/access.ts'
import { aborted, gitFailure, sanitize } from '../failure.ts'
import { noteRetryAfter, refuseWhileAskedToWait } from '../protocol/host-waits.ts'
import { drain, transportTo } from '../protocol/http.ts'
import { keepsCredentials, redirectTarget } from '../url.ts'

/** Whose objects are asked for. */
export interface LfsOwner {
  /** The repository's URL, which messages name. */
  shownUrl: string
  access: Access
}

/** Where its objects are asked for, and as whom. */
export interface LfsRemote extends LfsOwner {
  /** Of the LFS API, without a slash at its end. */
  api: URL
  /** Sent to the API's own host alone. */
  headers: Record<string, string>
}

export interface LfsRequest {
  url: URL
  headers: Record<string, string>
  /** Headers that nobody but the URL's own host may see. */
  ownHeaders: Record<string, string>
  /** A POST where it is there, else a GET. */
  body?: Buffer
  signal: AbortSignal
}

export type LfsBody = Dispatcher.ResponseData['body']

const maxRedirects = 5

/**
 * Sends a request, following at most five redirects by the rules for those of Git. Gives the body of an answer with status 200; nothing in it has been
 * checked. Throws ReconcileError `GitOperationFailed`.
 */
export async function sendLfs(remote: LfsRemote, asked: LfsRequest): Promise<LfsBody> {
  let { url, ownHeaders } = asked
  for (let redirects = 0; ; redirects++) {
    const response = await send(remote, { ...asked, url, ownHeaders })
    const { statusCode, headers, body } = response
    if (statusCode === 200 && (headers['content-encoding'] ?? 'identity') === 'identity') return body
    const retryAfterMs = noteRetryAfter(url.href, transportOf(remote, url), response)
    await drain(body)
    if (statusCode < 300 || statusCode > 399) throw lfsFailure(remote, statusText(statusCode), { retryAfterMs })
    if (redirects === maxRedirects) throw lfsFailure(remote, `more than ${maxRedirects} redirects`)
    const to = targetOf(remote, url, String(headers['location'] ?? ''))
    // Once they have been withheld they stay so: a second redirect must not lure them back.
    if (!keepsCredentials(url, to)) ownHeaders = {}
    url = to
  }
}

async function send(remote: LfsRemote, asked: LfsRequest): Promise<Dispatcher.ResponseData> {
  const { url, headers, ownHeaders, body, signal } = asked
  const transport = transportOf(remote, url)
  refuseWhileAskedToWait(url.href, transport, (why, retryAfterMs) => lfsFailure(remote, why, { retryAfterMs }))
  const options = {
    dispatcher: dispatcherFor(transport),
    method: body ? 'POST' : 'GET',
    headers: { 'user-agent': 'git-lfs/openflux', 'accept-encoding': 'identity', ...headers, ...ownHeaders },
    body: body ?? null,
    signal,
    headersTimeout: idleTimeoutMs,
    bodyTimeout: idleTimeoutMs,
  } as const
  try {
    // A server may close an idle connection just when it is used again; all requests only read.
    return await request(url, options).catch((err: unknown) => {
      if (signal.aborted) throw err
      return request(url, options)
    })
  } catch (err) {
    throw brokenOff(remote, err, signal)
  }
}

function transportOf({ api, access }: LfsRemote, url: URL): Transport {
  return transportTo({ base: url.href, credentials: keepsCredentials(api, url) }, access)
}

/** What a connection that failed becomes. */
export function brokenOff(remote: LfsRemote, err: unknown, signal: AbortSignal): ReconcileError {
  if (signal.aborted) return aborted(remote.shownUrl, signal)
  return lfsFailure(remote, messageOf(err) || 'unknown network error', { cause: err })
}

/** Where a server wants us to go. Throws ReconcileError `GitOperationFailed`. */
export function targetOf(remote: LfsOwner, from: URL, location: string): URL {
  try {
    return redirectTarget(from, location)
  } catch (err) {
    throw lfsFailure(remote, messageOf(err), { cause: err })
  }
}

/** Tells none of the credentials. */
export function lfsFailure(
  { shownUrl, access, headers = {} }: LfsOwner & Partial<LfsRemote>,
  detail: string,
  options: { cause?: unknown; retryAfterMs?: number | undefined } = {},
): ReconcileError {
  return gitFailure(shownUrl, `Git LFS: ${sanitize(detail, [...access.secrets, ...Object.values(headers)])}`, options)
}

function statusText(status: number): string {
  if (status === 401 || status === 403) return `authentication required (HTTP ${status})`
  if (status === 404) return 'not found (HTTP 404)'
  if (status === 200) return 'the answer is compressed, which was not asked for'
  return `unexpected HTTP status ${status}`
}
