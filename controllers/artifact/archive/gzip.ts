import { Readable } from 'node:stream'
import { createGzip } from 'node:zlib'

/** Turns the bytes of a tar archive into those of a `.tar.gz`; what it gives must depend on the bytes alone, not on their pieces. */
export type Compressor = (tar: AsyncIterable<Buffer>) => AsyncIterable<Buffer>

/** zlib takes a block at a time to a thread of its own: large enough to be worth the way, small enough to leave the event loop alone. */
const blockBytes = 256 * 1024

/** One gzip member at level 6, with neither name nor time in its header. */
export const gzip: Compressor = (tar) => {
  const compressor = createGzip({ level: 6, chunkSize: blockBytes })
  const source = Readable.from(equalBlocks(tar), { objectMode: false, highWaterMark: blockBytes })
  source.once('error', (err) => compressor.destroy(err))
  compressor.once('close', () => source.destroy())
  return source.pipe(compressor)
}

/** The same bytes in blocks of one size, so that the compressor sees the same calls however the bodies arrived. */
async function* equalBlocks(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let block = Buffer.allocUnsafe(blockBytes)
  let filled = 0
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length;) {
      const copied = piece.copy(block, filled, at)
      at += copied
      filled += copied
      if (filled < blockBytes) continue
      yield block
      block = Buffer.allocUnsafe(blockBytes)
      filled = 0
    }
  }
  if (filled > 0) yield block.subarray(0, filled)
}
