import type { Request, Response } from 'express'
import type { FileHandle } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { OpenedArtifact } from '../storage/storage.ts'
import { sameContent } from '../storage/verifier.ts'

const chunkBytes = 256 * 1024

/** Thrown when a file changed while it was being sent; the answer was cut off before its last byte. */
export class ChangedWhileSentError extends Error {}

/** Answers a request with an opened file or a part of it (RFC 9110: If-Match, If-None-Match, If-Range, one Range). The handle stays open. */
export async function sendFile(req: Request, res: Response, opened: OpenedArtifact): Promise<void> {
  const { digest, lastUpdateTime } = opened.artifact
  const size = Number(opened.stat.size)
  res.set({
    'Content-Type': 'application/gzip',
    'Last-Modified': new Date(lastUpdateTime).toUTCString(),
    'Accept-Ranges': 'bytes',
    ETag: `"${digest}"`,
  })
  if (isPreconditionFailed(req, res)) return void res.status(412).end()
  if (req.fresh) return void res.status(304).end()

  const range = wantedRange(req, res, size)
  if (range === 'unsatisfiable') return void res.status(416).set('Content-Range', `bytes */${size}`).end()
  const { start, end } = range ?? { start: 0, end: size - 1 }
  if (range) res.status(206).set('Content-Range', `bytes ${start}-${end}/${size}`)
  res.set('Content-Length', String(end - start + 1))
  if (req.method === 'HEAD') return void res.end()
  await pipeline(Readable.from(readVerified(opened, start, end), { objectMode: false }), res)
}

/** The bytes from `start` to `end`. The last ones are given away only when nobody has written to the file meanwhile: half an answer is no answer. */
async function* readVerified({ handle, stat }: OpenedArtifact, start: number, end: number): AsyncGenerator<Buffer> {
  for (let at = start; at <= end;) {
    const chunk = await readChunk(handle, at, Math.min(chunkBytes, end - at + 1))
    at += chunk.length
    const complete = at > end
    if (chunk.length === 0 || (complete && !sameContent(await handle.stat({ bigint: true }), stat))) {
      throw new ChangedWhileSentError('the file changed while it was being sent')
    }
    yield chunk
  }
}

async function readChunk(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(length), 0, length, position)
  return buffer.subarray(0, bytesRead)
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
