import type { Request, Response } from 'express'
import { finished } from 'node:stream/promises'
import type { OpenedArtifact } from '../storage/storage.ts'
import { sameContent } from '../storage/verifier.ts'
import type { StoredArtifact } from '../stored.ts'
import type { Content } from './contents.ts'

const chunkBytes = 256 * 1024

/** The headers of every answer. */
export const always = { 'X-Content-Type-Options': 'nosniff' }
/** A name is only as good as its last answer (the digest says whether it changed), and nobody may pack or unpack the bytes on the way. */
export const revalidate = 'no-cache, no-transform'

/** Thrown when a file changed while it was being sent; the answer was cut off before its last byte. */
export class ChangedWhileSentError extends Error {}

/** The headers of a whole stored file, but for its length. */
export function fileHeaders({ digest, lastUpdateTime }: StoredArtifact): Record<string, string> {
  return {
    'Content-Type': 'application/gzip',
    'Last-Modified': new Date(lastUpdateTime).toUTCString(),
    'Accept-Ranges': 'bytes',
    ETag: `"${digest}"`,
  }
}

/** Answers a request with a file or a part of it (RFC 9110: If-Match, If-None-Match, If-Range, one Range). Resolves when it is sent; closes nothing. */
export async function sendFile(req: Request, res: Response, content: Content): Promise<void> {
  const size = 'bytes' in content ? content.bytes.length : Number(content.opened.stat.size)
  res.set(fileHeaders(content.artifact))
  if (isPreconditionFailed(req, res)) return void res.status(412).end()
  if (req.fresh) return void res.status(304).end()

  const range = wantedRange(req, res, size)
  if (range === 'unsatisfiable') return void res.status(416).set('Content-Range', `bytes */${size}`).end()
  const { start, end } = range ?? { start: 0, end: size - 1 }
  if (range) res.status(206).set('Content-Range', `bytes ${start}-${end}/${size}`)
  res.set('Content-Length', String(end - start + 1))
  if (req.method === 'HEAD') return void res.end()
  const sent = finished(res)
  sent.catch(() => undefined) // it is awaited below, unless something else fails before
  if ('opened' in content) await sendOpened(res, content.opened, { start, end }, sent)
  else res.end(content.bytes.subarray(start, end + 1))
  await sent
}

/**
 * Sends the bytes of a range, reading one piece while the one before is written. The last one is given away only when nobody has written to the file
 * meanwhile: half an answer is no answer. `sent` rejects when the client goes away.
 */
async function sendOpened(res: Response, opened: OpenedArtifact, range: Range, sent: Promise<void>): Promise<void> {
  const { handle, stat } = opened
  const { start, end } = range
  const length = Math.min(chunkBytes, end - start + 1)
  // Taken in turn: memory that is used again costs nothing, new memory more than the reading.
  const buffers = [Buffer.allocUnsafeSlow(length), Buffer.allocUnsafeSlow(length)] as const
  let written: Promise<void> | undefined
  for (let at = start, turn = 0; at <= end; turn++) {
    const { buffer, bytesRead } = await handle.read(buffers[turn % 2]!, 0, Math.min(length, end - at + 1), at)
    at += bytesRead
    if (bytesRead === 0 || (at > end && !sameContent(await handle.stat({ bigint: true }), stat))) {
      throw new ChangedWhileSentError('the file changed while it was being sent')
    }
    await Promise.race([written, sent])
    written = write(res, buffer.subarray(0, bytesRead))
  }
  await Promise.race([written, sent])
  res.end()
}

/** Resolves when the bytes may be overwritten. */
function write(res: Response, bytes: Buffer): Promise<void> {
  return new Promise((resolve) => res.write(bytes, () => resolve()))
}

function isPreconditionFailed(req: Request, res: Response): boolean {
  const match = req.get('If-Match')
  if (match !== undefined) {
    const tags = match.split(',').map((tag) => tag.trim())
    return !tags.includes('*') && !tags.includes(res.get('ETag')!)
  }
  const unmodifiedSince = Date.parse(req.get('If-Unmodified-Since') ?? '')
  return Date.parse(res.get('Last-Modified')!) > unmodifiedSince
}

interface Range {
  start: number
  end: number
}

/** The one range that is asked for. Several are answered with the whole file, as is one that is malformed or of another version. */
function wantedRange(req: Request, res: Response, size: number): Range | 'unsatisfiable' | undefined {
  const ifRange = req.get('If-Range')
  const isOfThis = ifRange === undefined || ifRange === res.get('ETag') || ifRange === res.get('Last-Modified')
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(req.get('Range') ?? '')
  if (req.method !== 'GET' || !isOfThis || !match) return undefined
  const [, first = '', last = ''] = match
  if (first === '') {
    if (last === '') return undefined
    return Number(last) > 0 ? { start: Math.max(0, size - Number(last)), end: size - 1 } : 'unsatisfiable'
  }
  const start = Number(first)
  if (last !== '' && Number(last) < start) return undefined
  return start < size ? { start, end: last === '' ? size - 1 : Math.min(Number(last), size - 1) } : 'unsatisfiable'
}
