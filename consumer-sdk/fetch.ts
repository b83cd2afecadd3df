import { open } from 'node:fs/promises'
import { Agent, type Dispatcher } from 'undici'
import { makeHasher, parseDigest } from '../controllers/artifact/digest.ts'
import { abortableRequest } from '../controllers/runtime/abortable-request.ts'
import { messageOf, ReconcileError, StalledError, WaitingError } from '../controllers/runtime/errors.ts'
import { atHost, parseArtifactUrl, shownUrl } from './artifact-url.ts'
import type { ResolvedArtifact } from './resolve.ts'
import { RetryableFailure, type RetryPolicy, withRetries } from './retry.ts'
import { writeAll } from './write.ts'

/** What a download may cost. */
export interface FetchLimits extends RetryPolicy {
  /** For the whole download with all retries. */
  timeoutMs: number
  maxBytes: number
  /** `host:port` that takes the place of the URL's, e.g. of a port-forward; empty for none. */
  host?: string | undefined
}

/** Further tries where the answer itself is wrong: it may have been replaced a moment ago, more than that is no accident. */
const retriesOfWrongAnswers = 2
const maxRedirects = 3
const maxRetryAfterMs = 600_000
/** A body that comes more slowly than this on average, once it has had some time, is held back on purpose. */
const minBytesPerSecond = 1024
const slowAfterMs = 20_000

let sharedAgent: Agent | undefined

function agent(): Agent {
  return (sharedAgent ??= new Agent({ connect: { timeout: 10_000 }, headersTimeout: 15_000, bodyTimeout: 15_000 }))
}

/**
 * Downloads an Artifact's bytes into `file` and resolves with their number once size and digest are right. Throws ReconcileError `ArtifactFetchFailed` or
 * `DigestMismatch`, WaitingError `ArtifactNotServed`, StalledError `ArtifactTooLarge`. After an error the file's content is worth nothing.
 */
export async function downloadArtifact(
  artifact: Pick<ResolvedArtifact, 'url' | 'digest' | 'size'>,
  file: string,
  limits: FetchLimits,
  signal: AbortSignal,
): Promise<number> {
  const url = atHost(parseArtifactUrl(artifact.url), limits.host ?? '')
  const { size } = artifact
  if (size !== undefined && size > limits.maxBytes) throw tooLarge(`it has ${size} bytes`, limits.maxBytes)
  const timeout = AbortSignal.timeout(Math.min(Math.ceil(limits.timeoutMs), 2 ** 31 - 1))
  const bounded = AbortSignal.any([signal, timeout])
  try {
    return await withRetries(limits, bounded, () => attempt(artifact, url, file, limits, bounded))
  } catch (err) {
    if (!timeout.aborted || signal.aborted) throw err
    throw failed(url, `not finished within ${limits.timeoutMs / 1000}s`, err)
  }
}

async function attempt(
  artifact: Pick<ResolvedArtifact, 'digest' | 'size'>,
  url: URL,
  file: string,
  limits: FetchLimits,
  signal: AbortSignal,
): Promise<number> {
  const hasher = await makeHasher(parseDigest(artifact.digest).algorithm)
  const handle = await open(file, 'w', 0o600).catch(refuseToSave)
  let bytes = 0
  try {
    for await (const chunk of readBody(await openBody(url, signal), url, signal)) {
      bytes += chunk.length
      if (bytes > limits.maxBytes) throw tooLarge('the server sends more', limits.maxBytes)
      if (bytes > (artifact.size ?? Infinity)) throw mismatch(url, `more than the ${artifact.size} bytes of spec.size`)
      hasher.update(chunk)
      await writeAll(handle, chunk).catch(refuseToSave)
    }
  } finally {
    await handle.close()
  }
  if (artifact.size !== undefined && bytes !== artifact.size)
    throw mismatch(url, `${bytes} bytes instead of the ${artifact.size} of spec.size`)
  const digest = hasher.digest()
  if (digest !== artifact.digest) throw mismatch(url, `computed digest '${digest}' doesn't match '${artifact.digest}'`)
  return bytes
}

/** Follows redirects within the origin only: a server must not be able to send us to other hosts of the cluster. */
async function openBody(url: URL, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
  let at = url
  for (let redirects = 0; ; redirects++) {
    const response = await ask(at, signal)
    if (response.statusCode === 200) return response
    const location = String(response.headers.location ?? '')
    drop(response)
    if (![301, 302, 303, 307, 308].includes(response.statusCode)) throw refusal(at, response)
    const next = URL.parse(location, at)
    if (!location || !next) throw failed(at, 'a redirect without a usable location')
    if (next.origin !== at.origin || next.username || next.password)
      throw failed(at, `it redirects to another origin, ${next.protocol}//${next.host}`)
    if (redirects === maxRedirects) throw failed(url, `more than ${maxRedirects} redirects`)
    at = next
  }
}

async function ask(url: URL, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
  try {
    // A transfer encoding would make the bytes others than those of the digest.
    return await abortableRequest(url, { dispatcher: agent(), headers: { 'accept-encoding': 'identity' } }, signal)
  } catch (err) {
    throw transient(url, err, signal)
  }
}

async function* readBody(response: Dispatcher.ResponseData, url: URL, signal: AbortSignal): AsyncGenerator<Buffer> {
  const startedAt = performance.now()
  let bytes = 0
  try {
    for await (const chunk of response.body as AsyncIterable<Buffer>) {
      bytes += chunk.length
      yield chunk
      const elapsedMs = performance.now() - startedAt
      if (elapsedMs > slowAfterMs && (bytes * 1000) / elapsedMs < minBytesPerSecond)
        throw failed(url, `slower than ${minBytesPerSecond} bytes per second`)
    }
  } catch (err) {
    throw err instanceof ReconcileError ? err : transient(url, err, signal)
  } finally {
    drop(response)
  }
}

/** Ends an answer that may be endless and whose rest is of no interest; of that, the body reports an error to nobody. */
function drop({ body }: Dispatcher.ResponseData): void {
  body.on('error', () => {}).destroy()
}

function refuseToSave(cause: unknown): never {
  throw new ReconcileError('DownloadFailed', `cannot write the download: ${messageOf(cause)}`, { cause })
}

function refusal(url: URL, { statusCode, headers }: Dispatcher.ResponseData): Error {
  if (statusCode === 404 || statusCode === 410) {
    const message = `artifact not found at ${shownUrl(url)} (HTTP ${statusCode})`
    return new RetryableFailure(new WaitingError('ArtifactNotServed', message), retriesOfWrongAnswers)
  }
  const failure = failed(url, `HTTP ${statusCode}`, undefined, waitOf(headers['retry-after']))
  return statusCode >= 500 || statusCode === 429 || statusCode === 408 ? new RetryableFailure(failure) : failure
}

/** In ms; seconds or an HTTP date (RFC 9110 §10.2.3). Bounded: a server must not put us off for ever. */
function waitOf(header: string | string[] | undefined): number | undefined {
  const text = String(header ?? '')
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now()
  return ms > 0 ? Math.min(ms, maxRetryAfterMs) : undefined
}

function transient(url: URL, err: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason
  return new RetryableFailure(failed(url, messageOf(err) || 'connection failed', err))
}

function failed(url: URL, why: string, cause?: unknown, retryAfterMs?: number): ReconcileError {
  const message = `failed to download artifact from ${shownUrl(url)}: ${why}`
  return new ReconcileError('ArtifactFetchFailed', message, { cause, retryAfterMs })
}

function mismatch(url: URL, why: string): RetryableFailure {
  const message = `failed to verify artifact from ${shownUrl(url)}: ${why}`
  return new RetryableFailure(new ReconcileError('DigestMismatch', message), retriesOfWrongAnswers)
}

function tooLarge(why: string, maxBytes: number): StalledError {
  return new StalledError(
    'ArtifactTooLarge',
    `artifact not downloaded: ${why}, the limit is ${maxBytes} (--download-max-bytes)`,
  )
}
