import { Readable } from 'node:stream'
import { createGzip } from 'node:zlib'
import type { PlannedFile } from './archive-plan.ts'
import { readBodies } from './bodies.ts'
import { tarStream } from './tar-stream.ts'

/** Turns the files of a plan into the bytes of a `.tar.gz`; what it gives must depend on the files alone, not on the pieces in which they are read. */
export type Compressor = (files: readonly PlannedFile[], signal?: AbortSignal) => AsyncIterable<Buffer>

/** `members`: a chain of gzip members, of which only the changed ones are made anew. `single`: one, for readers that know no more. */
export type GzipForm = 'members' | 'single'

/** Level of all archives: a higher one takes twice the time for 1 %. */
export const gzipLevel = 6

/** zlib takes a block at a time to a thread of its own: large enough to be worth the way, small enough to leave the event loop alone. */
const blockBytes = 256 * 1024

/** One gzip member for the whole archive, with neither name nor time in its header. */
export const gzipSingle: Compressor = (files, signal) => {
  const compressor = createGzip({ level: gzipLevel, chunkSize: blockBytes })
  const tar = tarStream(readBodies(files, signal))
  const source = Readable.from(equalBlocks(tar, blockBytes), { objectMode: false, highWaterMark: blockBytes })
  source.once('error', (err) => compressor.destroy(err))
  compressor.once('close', () => source.destroy())
  return source.pipe(compressor)
}

/** The same bytes in blocks of one size, but for the last, however they arrive. */
export async function* equalBlocks(
  pieces: AsyncIterable<Buffer> | Iterable<Buffer>,
  sizeBytes: number,
): AsyncGenerator<Buffer> {
  let block = Buffer.allocUnsafe(sizeBytes)
  let filled = 0
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length;) {
      const copied = piece.copy(block, filled, at)
      at += copied
      filled += copied
      if (filled < sizeBytes) continue
      yield block
      block = Buffer.allocUnsafe(sizeBytes)
      filled = 0
    }
  }
  if (filled > 0) yield block.subarray(0, filled)
}
