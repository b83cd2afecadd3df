import { type FileHandle, open, rm } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { downloadArtifact } from '../../consumer-sdk/fetch.ts'
import { gunzip } from '../../consumer-sdk/gunzip.ts'
import { ArchiveError } from '../../consumer-sdk/tar/archive-error.ts'
import { ByteReader } from '../../consumer-sdk/tar/byte-reader.ts'
import { entryPath } from '../../consumer-sdk/tar/entry-path.ts'
import { readTar, type TarEntry } from '../../consumer-sdk/tar/reader.ts'
import type { ArchiveLimits } from '../artifact/archive/archive-plan.ts'
import { parseDigest } from '../artifact/digest.ts'
import type { Entry } from '../artifact/entry.ts'
import { quote } from '../artifact/quote.ts'
import type { Storage } from '../artifact/storage/storage.ts'
import type { Temps } from '../artifact/storage/temps.ts'
import type { Artifact } from '../artifact/types.ts'
import { ReconcileError, WaitingError } from '../runtime/errors.ts'
import type { OpenedEntries } from './source.ts'

export interface ArtifactFilesOptions {
  /** Where this process keeps its own artifacts, */
  storage: Pick<Storage, 'open'>
  /** and the stored path that a URL stands for, if it is one of them. */
  pathOf: (url: string) => string | undefined
  /** What an archive may hold once it is unpacked. */
  limits: ArchiveLimits
  /** Where bytes lie while they are read. */
  temps: Temps
}

/** Names and headers: more than any sound archive has for each of its entries. */
const headerBytes = 8 * 1024
const maxTotalPathBytes = 128 * 2 ** 20
/** A larger file is read in pieces of this size. */
const pieceBytes = 256 * 1024
const retries = 2
/** The timeout of the pass is shorter. */
const downloadTimeoutMs = 3_600_000

/**
 * The files of an Artifact, whoever serves it: its own bytes are opened where they lie, others downloaded as any consumer does. Nothing of it is used before the
 * digest was found right. Symbolic links are skipped. Throws ReconcileError `ArchiveInvalid`, and what a download throws.
 */
export async function openArtifactFiles(
  artifact: Artifact,
  options: ArtifactFilesOptions,
  signal: AbortSignal,
): Promise<OpenedEntries> {
  const { url, digest, size } = artifact.spec ?? { url: '' }
  if (!digest) throw new WaitingError('ArtifactInvalid', `artifact ${artifact.metadata.name} has no digest`)
  parseDigest(digest)
  const packed = (await openOwn(url, digest, options)) ?? (await download({ url, digest, size }, options, signal))
  try {
    return await unpack(packed, digest, options, signal)
  } catch (err) {
    if (err instanceof ArchiveError)
      throw new ReconcileError('ArchiveInvalid', `artifact refused: ${err.message}`, { cause: err })
    throw err
  } finally {
    await packed.close()
  }
}

async function openOwn(url: string, digest: string, options: ArtifactFilesOptions): Promise<FileHandle | undefined> {
  const path = options.pathOf(url)
  const opened = path === undefined ? undefined : await options.storage.open(path)
  if (typeof opened !== 'object') return undefined
  if (opened.artifact.digest === digest) return opened.handle
  await opened.handle.close()
  return undefined
}

async function download(
  artifact: { url: string; digest: string; size: number | undefined },
  { temps, limits: { maxBytes } }: ArtifactFilesOptions,
  signal: AbortSignal,
): Promise<FileHandle> {
  const { path, handle } = await temps.create()
  await handle.close()
  try {
    const { url, digest, size } = artifact
    const wanted = { url, digest, ...(size !== undefined && { size }) }
    await downloadArtifact(wanted, path, { maxBytes, retries, timeoutMs: downloadTimeoutMs }, signal)
    return await openAndUnlink(path)
  } finally {
    await rm(path, { force: true })
  }
}

/** Unpacks into a file that no folder lists, so that it goes with this process at the latest. */
async function unpack(
  packed: FileHandle,
  digest: string,
  { temps, limits }: ArtifactFilesOptions,
  signal: AbortSignal,
): Promise<OpenedEntries> {
  const { path, handle: writer } = await temps.create()
  let reader: FileHandle | undefined
  try {
    const unpacked = (reader = await openAndUnlink(path))
    const sizeBytes = (await packed.stat()).size
    const tooLarge = () => overLimit(`unpacks to more than ${maxUnpackedBytes} bytes`)
    const maxUnpackedBytes = limits.maxBytes + limits.maxEntries * headerBytes
    const bytes = () => Readable.from(pieces(packed, 0, sizeBytes), { objectMode: false })
    const tar = gunzip({ open: bytes, sizeBytes, maxUnpackedBytes, tooLarge }, signal)
    const entries: Entry[] = []
    await pipeline(
      spool(tar, limits, (file) => entries.push(entryOf(file, digest, unpacked))),
      writer.createWriteStream(),
    )
    return { entries, close: () => unpacked.close() }
  } catch (err) {
    await reader?.close()
    throw err
  } finally {
    await writer.close()
  }
}

async function openAndUnlink(path: string): Promise<FileHandle> {
  try {
    return await open(path, 'r')
  } finally {
    await rm(path, { force: true })
  }
}

/** A file of the archive, and where its content begins in the unpacked file. */
interface SpooledFile extends Pick<TarEntry, 'mode' | 'sizeBytes'> {
  path: string
  start: number
}

/** The contents of all files, one behind the other; `onFile` is told of each before its content. */
async function* spool(
  tar: AsyncGenerator<Buffer, void, undefined>,
  limits: ArchiveLimits,
  onFile: (file: SpooledFile) => void,
): AsyncGenerator<Buffer> {
  let start = 0
  let entries = 0
  let pathBytes = 0
  try {
    for await (const { type, typeName, path: raw, mode, sizeBytes, body } of readTar(new ByteReader(tar))) {
      const path = entryPath(raw, type === 'folder')
      if (type === 'other') throw new ArchiveError(`entry ${quote(path)}: a ${typeName} is neither file nor folder`)
      if (++entries > limits.maxEntries) throw overLimit(`has more than ${limits.maxEntries} entries`)
      if (type !== 'file') continue
      pathBytes += path.length
      if (pathBytes > maxTotalPathBytes) throw overLimit(`has paths of more than ${maxTotalPathBytes} bytes`)
      if (sizeBytes > limits.maxFileBytes) throw overLimit(`has a file of more than ${limits.maxFileBytes} bytes`)
      onFile({ path, mode, sizeBytes, start })
      start += sizeBytes
      if (start > limits.maxBytes) throw overLimit(`has more than ${limits.maxBytes} bytes`)
      yield* body
    }
  } finally {
    await tar.return()
  }
}

function entryOf({ path, mode, sizeBytes, start }: SpooledFile, digest: string, reader: FileHandle): Entry {
  return {
    path,
    mode,
    sizeBytes,
    contentId: `artifact:${digest}:${path}`,
    open: async () =>
      sizeBytes <= pieceBytes
        ? readPiece(reader, start, sizeBytes)
        : Readable.from(pieces(reader, start, sizeBytes), { objectMode: false }),
  }
}

async function* pieces(handle: FileHandle, start: number, sizeBytes: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < sizeBytes; at += pieceBytes)
    yield await readPiece(handle, start + at, Math.min(pieceBytes, sizeBytes - at))
}

async function readPiece(handle: FileHandle, position: number, sizeBytes: number): Promise<Buffer> {
  const piece = Buffer.allocUnsafe(sizeBytes)
  for (let filled = 0; filled < sizeBytes;) {
    const { bytesRead } = await handle.read(piece, filled, sizeBytes - filled, position + filled)
    if (bytesRead === 0) throw new Error('the file was cut short while it was read')
    filled += bytesRead
  }
  return piece
}

function overLimit(what: string): ReconcileError {
  return new ReconcileError('ArchiveInvalid', `artifact refused: it ${what}`)
}
