import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { defaultArchiveLimits, planArchive, type ArchiveLimits, type SymlinkPolicy } from './archive-plan.ts'
import { makeHasher, type DigestAlgorithm } from '../digest.ts'
import type { Entries } from '../entry.ts'
import type { Compressor } from './gzip.ts'
import { gzipMembers } from './member-gzip.ts'

/** What is written at once: members may be tiny. */
const writeBytes = 512 * 1024

/** What an archive depends on beside the entries. */
export interface ArchiveOptions {
  /** `spec.ignore`. */
  ignore?: string | undefined
  /** What is left out has its default. */
  limits?: Partial<ArchiveLimits> | undefined
  /** Defaults to sha256. */
  digestAlgorithm?: DigestAlgorithm | undefined
  /** Defaults to `drop`. */
  symlinks?: SymlinkPolicy | undefined
  signal?: AbortSignal | undefined
  /** Defaults to a chain of gzip members that are all made anew. */
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
  /** Symbolic links that were left out, ignored ones not counted. */
  droppedSymlinks: number
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
  const { signal, compress = gzipMembers() } = options
  const limits = { ...defaultArchiveLimits, ...options.limits }
  const plan = await planArchive(entries, { ignore: options.ignore, limits, symlinks: options.symlinks, signal })
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
    const bytes = measured(joined(compress(plan.files, signal)))
    await pipeline(bytes, out, signal ? { signal } : {})
  } catch (err) {
    signal?.throwIfAborted()
    throw err
  }
  const { files, contentBytes, ignored, droppedSymlinks } = plan
  return { digest: hasher.digest(), sizeBytes, files: files.length, contentBytes, ignored, droppedSymlinks }
}

async function* joined(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let held: Buffer[] = []
  let heldBytes = 0
  for await (const chunk of chunks) {
    held.push(chunk)
    heldBytes += chunk.length
    if (heldBytes < writeBytes) continue
    yield held.length === 1 ? chunk : Buffer.concat(held)
    held = []
    heldBytes = 0
  }
  if (heldBytes > 0) yield Buffer.concat(held)
}
