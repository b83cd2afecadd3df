import { request } from 'undici'
import type { Access } from '../access/access.ts'
import { aborted, gitFailure, sanitize } from '../failure.ts'
import { messageOf, ReconcileError } from '../../runtime/errors.ts'
import { dispatcherFor, idleTimeoutMs } from '../../source/transport/dispatcher.ts'
import type { Transport } from '../../source/transport/transport.ts'
import { followRedirect } from '../url.ts'
import { noteRetryAfter, refuseWhileAskedToWait } from './host-waits.ts'

/** Where requests for one repository go, which differs from its URL after a redirect. */
export interface Endpoint {
  /** Without a slash at its end. */
  base: string
  /** False after a redirect to another host. */
  credentials: boolean
}

/** One request of the smart HTTP protocol (gitprotocol-http). */
export interface GitRequest {
  /** The URL that messages name. */
  shownUrl: string
  endpoint: Endpoint
  access: Access
  /** Absent for the advertisement. */
  body?: Buffer
  signal: AbortSignal
}

export interface GitResponse {
  endpoint: Endpoint
  body: Body
}

type Response = Awaited<ReturnType<typeof request>>

/** The body of an answer, still to be read. */
export type Body = Response['body']

/** The server answered, but not as a Git server at this place would: what is the cause of such a failure. */
export class AnswerError extends Error {}

const maxRedirects = 5
const advertisement = '/info/refs?service=git-upload-pack'

/**
 * Asks `info/refs`, following at most five redirects, or posts to `git-upload-pack`, following none. The answer's type has been checked; its
 * length has not. Throws ReconcileError `GitOperationFailed`.
 */
export async function requestGit(options: GitRequest): Promise<GitResponse> {
  const { shownUrl, body } = options
  let endpoint = options.endpoint
  for (let redirects = 0; ; redirects++) {
    const response = await send(options, endpoint)
    if (response.statusCode < 300 || response.statusCode > 399) {
      await checkAnswer(response, endpoint, options)
      return { endpoint, body: response.body }
    }
    await drain(response.body)
    if (body) throw gitFailure(shownUrl, statusText(response.statusCode), { cause: new AnswerError('redirect') })
    if (redirects === maxRedirects) throw gitFailure(shownUrl, `more than ${maxRedirects} redirects`)
    endpoint = redirected(shownUrl, endpoint, single(response.headers['location']))
  }
}

async function send({ shownUrl, access, body, signal }: GitRequest, endpoint: Endpoint): Promise<Response> {
  const headers: Record<string, string> = { 'user-agent': 'git/openflux', 'git-protocol': 'version=2', accept: '*/*' }
  if (access.authorization && endpoint.credentials) headers['authorization'] = access.authorization
  if (body) {
    headers['content-type'] = 'application/x-git-upload-pack-request'
    headers['accept'] = 'application/x-git-upload-pack-result'
  }
  const url = endpoint.base + (body ? '/git-upload-pack' : advertisement)
  const transport = transportTo(endpoint, access)
  refuseWhileAskedToWait(url, transport, (why, retryAfterMs) => gitFailure(shownUrl, why, { retryAfterMs }))
  const options = {
    dispatcher: dispatcherFor(transport),
    method: body ? 'POST' : 'GET',
    headers,
    body: body ?? null,
    signal,
    headersTimeout: idleTimeoutMs,
    bodyTimeout: idleTimeoutMs,
  } as const
  try {
    // A server may close an idle connection just when it is used again; both requests only read.
    return await request(url, options).catch((err: unknown) => {
      if (signal.aborted || !isReset(err)) throw err
      return request(url, options)
    })
  } catch (err) {
    throw networkFailure(shownUrl, err, access, signal)
  }
}

/** Another host than the repository's does not get to see the client's certificate. */
export function transportTo({ credentials }: Endpoint, access: Access): Transport {
  const { tls, proxy } = access
  if (credentials || !tls?.cert) return access
  return { tls: tls.ca ? { ca: tls.ca } : undefined, proxy }
}

function isReset(err: unknown): boolean {
  return err instanceof Error && 'code' in err && (err.code === 'UND_ERR_SOCKET' || err.code === 'ECONNRESET')
}

/** What a failed connection or a broken answer becomes. */
export function networkFailure(shownUrl: string, err: unknown, access: Access, signal: AbortSignal): ReconcileError {
  if (err instanceof ReconcileError) return err
  if (signal.aborted) return aborted(shownUrl, signal)
  const code = err instanceof Error && 'code' in err ? String(err.code) : 'unknown network error'
  return gitFailure(shownUrl, sanitize(messageOf(err), access.secrets) || code, { cause: err })
}

function redirected(shownUrl: string, from: Endpoint, location: string): Endpoint {
  try {
    const to = followRedirect(from.base, advertisement, location)
    // Once they have been withheld they stay so: a second redirect must not lure them back.
    return { base: to.base, credentials: from.credentials && to.credentials }
  } catch (err) {
    throw gitFailure(shownUrl, messageOf(err), { cause: err })
  }
}

async function checkAnswer(response: Response, asked: Endpoint, { shownUrl, access, body }: GitRequest): Promise<void> {
  const { statusCode, headers } = response
  const type = single(headers['content-type']).split(';')[0]?.trim()
  const wanted = `application/x-git-upload-pack-${body ? 'result' : 'advertisement'}`
  const encoding = single(headers['content-encoding']) || 'identity'
  if (statusCode === 200 && type === wanted && encoding === 'identity') return
  const retryAfterMs = noteRetryAfter(asked.base, transportTo(asked, access), response)
  await drain(response.body)
  if (statusCode === 200) {
    // The header as it came: a secret that has been cut or quoted would not be found any more.
    const [what, got] = encoding === 'identity' ? ['type', single(headers['content-type'])] : ['encoding', encoding]
    const shown = JSON.stringify(sanitize(got, access.secrets, 100))
    const detail = `not a Git server that speaks smart HTTP: unexpected content ${what} ${shown}`
    throw gitFailure(shownUrl, detail, { cause: new AnswerError('content') })
  }
  throw gitFailure(shownUrl, statusText(statusCode), {
    ...([400, 404, 405, 410, 415].includes(statusCode) ? { cause: new AnswerError('status') } : {}),
    retryAfterMs,
  })
}

function statusText(status: number): string {
  if (status === 401 || status === 403) return `authentication required (HTTP ${status})`
  if (status === 404) return 'repository not found'
  if (status === 407) return 'the proxy requires authentication (HTTP 407)'
  if (status === 429) return 'too many requests (HTTP 429)'
  return `unexpected HTTP status ${status}`
}

function single(header: string | string[] | undefined): string {
  return (Array.isArray(header) ? header[0] : header) ?? ''
}

/** Reads a little of what nobody wants, so that the connection can be used again. */
export async function drain(body: Body): Promise<void> {
  // Whatever goes wrong here, nobody wants the rest.
  await body.dump({ limit: 16_384, signal: AbortSignal.timeout(2_000) }).catch(() => undefined)
}
