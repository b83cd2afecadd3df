import type { RequestListener, ServerResponse } from 'node:http'
import type { StoredArtifact } from '../stored.ts'
import type { Contents, MemoryContent } from './contents.ts'
import { always, fileHeaders, revalidate } from './send-file.ts'

/**
 * Answers the usual request, a plain GET of a path whose bytes are in memory, with what `others` would answer but without their cost; passes all
 * other requests on.
 */
export function answerFromMemory(contents: Contents, others: RequestListener): RequestListener {
  return (req, res) => {
    const path = usualPath.exec(req.url ?? '')?.[1]
    if (path === undefined || req.method !== 'GET' || req.rawHeaders.some(isCondition)) return others(req, res)
    contents.inMemory(path).then(
      (content) => (content ? sendWhole(res, content) : others(req, res)),
      () => others(req, res),
    )
  }
}

/** A path without anything to decode; whether it can be one of ours the storage knows. */
const usualPath = /^\/((?:[a-z0-9.-]+\/){3}[A-Za-z0-9._:+=@-]+)$/

/** Of the name of a header that could ask for anything but the whole file; a value that looks like one does no harm. */
function isCondition(text: string): boolean {
  return /^(?:if-|range$)/i.test(text)
}

function sendWhole(res: ServerResponse, content: MemoryContent): void {
  if (res.destroyed) return content.close()
  res.once('close', content.close)
  res.writeHead(200, wholeHeaders(content))
  res.end(content.bytes)
}

/** The headers by the record that a look has given, which many requests share. */
const prepared = new WeakMap<StoredArtifact, Record<string, string>>()

function wholeHeaders({ artifact, bytes }: MemoryContent): Record<string, string> {
  let headers = prepared.get(artifact)
  if (!headers) {
    const length = { 'Content-Length': String(bytes.length) }
    headers = { ...always, 'Cache-Control': revalidate, ...fileHeaders(artifact), ...length }
    prepared.set(artifact, headers)
  }
  return headers
}
