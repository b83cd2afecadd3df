import { addAbortSignal, type Readable } from 'node:stream'
import { ReconcileError } from '../../runtime/errors.ts'
import type { PlannedFile } from './archive-plan.ts'
import { archiveError } from './entry-path.ts'
import { orAborted } from './pace.ts'
import { quote } from '../quote.ts'

/** How far bodies are asked for ahead of the one being written, so that a source that answers in order is never idle. */
const aheadEntries = 512
const aheadBytes = 4 * 2 ** 20
/** A larger body is not held in memory: it is opened when its turn comes, and streams. */
const smallBytes = 2 ** 20

/** A file and all of its content: in memory, or as pieces yet to be read. */
export interface FileBody {
  file: PlannedFile
  content: Buffer | AsyncIterable<Buffer>
}

/** Opens all files in their order, the small ones ahead of time, and checks that each has exactly the size that was announced. */
export async function* readBodies(files: readonly PlannedFile[], signal?: AbortSignal): AsyncGenerator<FileBody> {
  const ahead: Promise<Buffer>[] = []
  let bytes = 0
  let next = 0
  for (const [at, file] of files.entries()) {
    next = Math.max(next, at)
    for (; next < files.length && next - at < aheadEntries; next++) {
      const candidate = files[next]!
      if (candidate.sizeBytes > smallBytes || (next > at && bytes + candidate.sizeBytes > aheadBytes)) break
      bytes += candidate.sizeBytes
      const body = readBody(candidate, signal)
      body.catch(() => {}) // awaited below, unless an earlier one ends everything
      ahead.push(body)
    }
    const body = ahead.shift()
    if (body) yield { file, content: await body }
    else yield { file, content: streamBody(file, signal) }
    if (body) bytes -= file.sizeBytes
  }
}

/** The whole content of a file. */
export async function readBody(file: PlannedFile, signal?: AbortSignal): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of streamBody(file, signal)) chunks.push(chunk)
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
}

async function* streamBody(file: PlannedFile, signal: AbortSignal | undefined): AsyncGenerator<Buffer> {
  let bytes = 0
  try {
    const opened = await orAborted(file.open(), signal)
    for await (const chunk of Buffer.isBuffer(opened) ? [opened] : bounded(opened, signal)) {
      bytes += chunk.length
      if (bytes > file.sizeBytes)
        throw archiveError(`${quote(file.path)} has more than the announced ${file.sizeBytes} bytes`)
      yield chunk
    }
  } catch (err) {
    signal?.throwIfAborted()
    if (err instanceof ReconcileError) throw err
    throw archiveError(`failed to read ${quote(file.path)}: ${err instanceof Error ? err.message : String(err)}`, err)
  }
  if (bytes < file.sizeBytes)
    throw archiveError(`${quote(file.path)} has ${bytes} of the announced ${file.sizeBytes} bytes`)
}

function bounded(stream: Readable, signal: AbortSignal | undefined): AsyncIterable<Buffer> {
  return signal ? addAbortSignal(signal, stream) : stream
}
