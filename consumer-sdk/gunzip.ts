import { pipeline, type Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { messageOf } from '../controllers/runtime/errors.ts'
import { codeOf } from './system-error.ts'
import { ArchiveError } from './tar/archive-error.ts'

/** A gzip file: its bytes, how many they are, and how many they may become. */
export interface Packed {
  /** Called when the first of them is asked for, if ever. */
  open(): Readable
  sizeBytes: number
  maxUnpackedBytes: number
  /** The error of one that unpacks to more. */
  tooLarge(): Error
}

/**
 * The unpacked bytes of a gzip file of any number of members, counted as they come. Throws ArchiveError on a damaged one and on data behind its end. Whoever
 * stops early must call `return`.
 */
export async function* gunzip(packed: Packed, signal: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
  const unpacked = createGunzip({ chunkSize: 64 * 1024 })
  // Failures of either reach whoever reads the unpacked end; `pipeline` ends the source in any case.
  pipeline(packed.open(), unpacked, () => {})
  let bytes = 0
  try {
    for await (const chunk of unpacked as AsyncIterable<Buffer>) {
      signal.throwIfAborted()
      bytes += chunk.length
      if (bytes > packed.maxUnpackedBytes) throw packed.tooLarge()
      yield chunk
    }
  } catch (err) {
    throw codeOf(err).startsWith('Z_') ? new ArchiveError(`not a sound gzip file, ${messageOf(err)}`) : err
  }
  if (unpacked.bytesWritten !== packed.sizeBytes) throw new ArchiveError('data after the end of the gzip file')
}
