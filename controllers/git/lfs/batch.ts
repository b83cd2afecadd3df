import { keepsCredentials } from '../url.ts'
import { brokenOff, lfsFailure, sendLfs, targetOf, type LfsBody, type LfsRemote } from './lfs-http.ts'
import type { Pointer } from './pointer.ts'

/** An object that a file of the commit stands for. */
export interface LfsObject extends Pointer {
  /** Of the first file that does; what messages name. */
  path: string
}

/** How an object is downloaded. */
export interface Download {
  url: URL
  /** For the URL's own host alone. */
  headers: Record<string, string>
  /** On the clock of `performance.now()`. */
  untilMs: number
}

/** As many as servers take at once. */
export const maxBatchObjects = 100
const maxAnswerBytes = 1024 * 1024
const maxHrefChars = 8 * 1024
const maxHeaderChars = 16 * 1024
/** Addresses are not used any more so long before they expire. */
const expiryMarginMs = 5_000
const mediaType = 'application/vnd.git-lfs+json'

/** What belongs to the connection is not the server's to say. */
const ownHeaders =
  /^(?:host|connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|expect|content-.*|accept-encoding|range|if-.*)$/

/**
 * Asks where objects can be downloaded (Git LFS batch API, transfer `basic`). Gives for each of them the download, or the Error that says why there is none. Throws
 * ReconcileError `GitOperationFailed` where the answer as a whole is no good.
 */
export async function askBatch(
  remote: LfsRemote,
  objects: readonly LfsObject[],
  signal: AbortSignal,
): Promise<(Download | Error)[]> {
  const wanted = objects.map(({ oid, sizeBytes }) => ({ oid, size: sizeBytes }))
  const asked = { operation: 'download', transfers: ['basic'], objects: wanted, hash_algo: 'sha256' }
  const body = await sendLfs(remote, {
    url: new URL(`${remote.api.href}/objects/batch`),
    headers: { accept: mediaType, 'content-type': mediaType },
    ownHeaders: remote.headers,
    body: Buffer.from(JSON.stringify(asked)),
    signal,
  })
  const answers = await readAnswer(remote, body, signal)
  return objects.map((object) => {
    try {
      return downloadOf(remote, object, answers.get(object.oid))
    } catch (err) {
      const { message } = err as Error
      return lfsFailure(remote, `object '${object.oid}' of '${object.path}': ${message}`, { cause: err })
    }
  })
}

type Answer = Record<string, unknown>

async function readAnswer(remote: LfsRemote, body: LfsBody, signal: AbortSignal): Promise<Map<string, Answer>> {
  const answer = parsed(remote, await readBounded(remote, body, signal))
  const { objects, transfer = 'basic', hash_algo: algorithm = 'sha256' } = answer
  if (!Array.isArray(objects)) throw lfsFailure(remote, 'the answer is not one of the batch API')
  if (transfer !== 'basic' && transfer !== '')
    throw lfsFailure(remote, "the server wants another transfer than 'basic'")
  if (algorithm !== 'sha256' && algorithm !== '')
    throw lfsFailure(remote, "the server wants another hash than 'sha256'")
  const answers = new Map<string, Answer>()
  for (const object of objects.filter(isRecord))
    if (typeof object['oid'] === 'string') answers.set(object['oid'], object)
  return answers
}

async function readBounded(remote: LfsRemote, body: LfsBody, signal: AbortSignal): Promise<Buffer> {
  const chunks: Buffer[] = []
  let received = 0
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      received += chunk.length
      if (received > maxAnswerBytes) break
      chunks.push(chunk)
    }
  } catch (err) {
    throw brokenOff(remote, err, signal)
  }
  if (received > maxAnswerBytes) throw lfsFailure(remote, `the answer is longer than ${maxAnswerBytes} bytes`)
  return Buffer.concat(chunks)
}

function parsed(remote: LfsRemote, text: Buffer): Answer {
  let answer: unknown
  try {
    answer = JSON.parse(text.toString())
  } catch (err) {
    throw lfsFailure(remote, 'the answer is not JSON', { cause: err })
  }
  return isRecord(answer) ? answer : {}
}

function downloadOf(remote: LfsRemote, object: LfsObject, answer: Answer = {}): Download {
  const { error, size, actions, authenticated } = answer
  if (isRecord(error)) throw new Error(`${String(error['message'])} (${String(error['code'])})`)
  if (typeof size === 'number' && size !== object.sizeBytes) {
    throw new Error(`it has ${size} bytes where the pointer says ${object.sizeBytes}`)
  }
  const action = isRecord(actions) ? actions['download'] : undefined
  if (!isRecord(action) || typeof action['href'] !== 'string') throw new Error('the server does not say where it is')
  const url = targetOf(remote, remote.api, boundedHref(action['href']))
  const headers = headersOf(action['header'])
  // Where the server names none, its own host may get those of the repository.
  const silent = !('authorization' in headers) && authenticated !== true && keepsCredentials(remote.api, url)
  return { url, headers: silent ? { ...remote.headers, ...headers } : headers, untilMs: expiryOf(action) }
}

/** Throws an Error where an address is longer than any that makes sense. */
export function boundedHref(href: string): string {
  if (href.length > maxHrefChars) throw new Error(`its address is longer than ${maxHrefChars} characters`)
  return href
}

/** The headers of an action, by names in lower case. Throws an Error where there is something else among them. */
export function headersOf(given: unknown): Record<string, string> {
  if (!isRecord(given)) return {}
  const headers: Record<string, string> = {}
  let chars = 0
  for (const [name, value] of Object.entries(given)) {
    if (typeof value !== 'string' || !/^[\w-]+$/.test(name) || !/^[\t\x20-\x7e]*$/.test(value)) {
      throw new Error('it comes with a header that is none')
    }
    chars += name.length + value.length
    if (!ownHeaders.test(name.toLowerCase())) headers[name.toLowerCase()] = value
  }
  if (chars > maxHeaderChars) throw new Error(`it comes with more than ${maxHeaderChars} characters of headers`)
  return headers
}

/** `expires_in` (seconds) wins over `expires_at` (RFC 3339), whose clock is another's; the year 1 of Go's empty time is none. */
function expiryOf({ expires_in: seconds, expires_at: time }: Record<string, unknown>): number {
  const now = performance.now() - expiryMarginMs
  if (typeof seconds === 'number' && seconds !== 0) return now + seconds * 1000
  const atMs = typeof time === 'string' ? Date.parse(time) : NaN
  return atMs > 0 ? now + atMs - Date.now() : Infinity
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
