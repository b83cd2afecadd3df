import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { defaultArchiveLimits, planArchive, type ArchiveLimits } from './archive-plan.ts'
import { readBodies } from './bodies.ts'
import { makeHasher, type DigestAlgorithm } from '../digest.ts'
import type { Entries } from '../entry.ts'
import { gzip, type Compressor } from './gzip.ts'
import { tarStream } from './tar-stream.ts'

/** What an archive depends on beside the entries. */
export interface ArchiveOptions {
  /** `spec.ignore`. */
  ignore?: string | undefined
  /** What is left out has its default. */
  limits?: Partial<ArchiveLimits> | undefined
  /** Defaults to sha256. */
  digestAlgorithm?: DigestAlgorithm | undefined
  signal?: AbortSignal | undefined
  /** Defaults to one plain gzip member. */
  compress?: Compressor | undefined
}

/** What has been written. */
export interface ArchiveResult {
  /** Of the bytes written. */
  digest: string
  sizeBytes: number
  files: number
  /** Of the files, before compression. */
  contentBytes: number
  ignored: number
}

/**
 * Writes the entries as a tar.gz whose tar bytes are the same for the same tree on every machine, and ends `out`. Throws ArchiveOperationFailed for
 * hostile paths, wrong sizes and passed limits, InvalidIgnore for bad rules, the signal's reason, and what `out` or an entry throws.
 */
export async function writeArchive(
  entries: Entries,
  out: Writable,
  options: ArchiveOptions = {},
): Promise<ArchiveResult> {
  const { signal, compress = gzip } = options
  const limits = { ...defaultArchiveLimits, ...options.limits }
  const plan = await planArchive(entries, { ignore: options.ignore, limits, signal })
  const hasher = await makeHasher(options.digestAlgorithm ?? 'sha256')
  let sizeBytes = 0
  async function* measured(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      hasher.update(chunk)
      sizeBytes += chunk.length
      yield chunk
    }
  }
  try {
    const bytes = measured(compress(tarStream(readBodies(plan.files, signal))))
    await pipeline(bytes, out, signal ? { signal } : {})
  } catch (err) {
    signal?.throwIfAborted()
    throw err
  }
  const { files, contentBytes, ignored } = plan
  return { digest: hasher.digest(), sizeBytes, files: files.length, contentBytes, ignored }
}
