import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { quote } from '../controllers/artifact/quote.ts'
import { messageOf, ReconcileError, StalledError } from '../controllers/runtime/errors.ts'
import { type Extracted, FolderWriter } from './folder-writer.ts'
import { gunzip } from './gunzip.ts'
import { openStage } from './stage.ts'
import { ArchiveError } from './tar/archive-error.ts'
import { ByteReader } from './tar/byte-reader.ts'
import { entryPath } from './tar/entry-path.ts'
import { readTar, type TarEntry } from './tar/reader.ts'

/** What an extraction may cost. */
export interface ExtractLimits {
  /** Bytes of the unpacked stream, names and padding included; counted while unpacking, whatever headers say. */
  maxBytes: number
  /** Files, folders and whatever else the archive lists. */
  maxEntries: number
}

export interface ExtractOptions {
  /** Only this folder of the archive, whose content then lies at the top. */
  folder?: string | undefined
  /** Takes the place of what is in the target. Without it the target must be empty or absent. */
  replace?: boolean | undefined
  /** Symbolic links are never made. Defaults to `skip`, as Flux's consumers do. */
  symlinks?: 'skip' | 'refuse' | undefined
  /** Also refuses names that another file system could not tell apart (case, Unicode forms), e.g. of who gets the files next. */
  portableNames?: boolean | undefined
}

/**
 * Extracts a tar.gz whose digest has been checked into the folder `target`, all of it or nothing. Throws StalledError `ArchiveInvalid` (hostile, damaged),
 * `ArchiveTooLarge` or `FolderNotFound`, which the same bytes would cause again, and ReconcileError `ExtractionFailed` for trouble with the target.
 */
export async function extractArchive(
  file: string,
  target: string,
  limits: ExtractLimits,
  options: ExtractOptions,
  signal: AbortSignal,
): Promise<Extracted> {
  const stage = await openStage(target, options.replace ?? false).catch((err: unknown) => {
    throw extractionFailed(target, err)
  })
  try {
    const written = await unpack(file, stage.path, limits, options, signal)
    await stage.commit()
    return written
  } catch (err) {
    if (signal.aborted) throw signal.reason
    if (err instanceof ArchiveError)
      throw new StalledError('ArchiveInvalid', `artifact refused: ${err.message}`, { cause: err })
    throw isSystemError(err) ? extractionFailed(target, err) : err
  } finally {
    await stage.discard()
  }
}

async function unpack(
  file: string,
  root: string,
  limits: ExtractLimits,
  options: ExtractOptions,
  signal: AbortSignal,
): Promise<Extracted> {
  const writer = new FolderWriter(root, options.portableNames)
  const only = wantedFolder(options.folder ?? '')
  const tar = gunzip(
    {
      open: () => createReadStream(file),
      sizeBytes: (await stat(file)).size,
      maxUnpackedBytes: limits.maxBytes,
      tooLarge: () => tooLarge(`it unpacks to more than ${limits.maxBytes} bytes`, '--extract-max-bytes'),
    },
    signal,
  )
  let entries = 0
  let found = only === ''
  try {
    for await (const entry of readTar(new ByteReader(tar))) {
      if (++entries > limits.maxEntries)
        throw tooLarge(`it has more than ${limits.maxEntries} entries`, '--extract-max-entries')
      const path = below(only, checkedPath(entry))
      if (path === undefined) continue
      if (entry.type !== 'symlink') found = true
      await add(writer, entry, path, options)
    }
    await writer.finish()
  } finally {
    await tar.return(undefined)
    await writer.settle()
  }
  if (!found) throw new StalledError('FolderNotFound', `the artifact has no folder ${quote(only)}`)
  return writer.written
}

function wantedFolder(folder: string): string {
  try {
    return folder ? entryPath(folder, true) : ''
  } catch (err) {
    throw new StalledError('FolderNotFound', `the folder to extract: ${messageOf(err)}`)
  }
}

/** Checked for every entry, also for those that are not wanted: what is hostile in one place is not trusted in another. */
function checkedPath(entry: TarEntry): string {
  const path = entryPath(entry.path, entry.type === 'folder')
  if (entry.type === 'other')
    throw new ArchiveError(`entry ${quote(path)}: a ${entry.typeName} is neither file nor folder`)
  return path
}

/** The path relative to the wanted folder; undefined outside it, and for a file of its name. */
function below(only: string, path: string): string | undefined {
  if (only === '' || path === only) return only === '' ? path : ''
  return path.startsWith(`${only}/`) ? path.slice(only.length + 1) : undefined
}

async function add(writer: FolderWriter, entry: TarEntry, path: string, options: ExtractOptions): Promise<void> {
  if (entry.type === 'symlink') {
    if (options.symlinks === 'refuse') throw new ArchiveError(`entry ${quote(entry.path)}: a symbolic link`)
    writer.written.skippedLinks++
  } else if (entry.type === 'folder') await writer.addFolder(path)
  else if (path === '') throw new ArchiveError(`entry ${quote(entry.path)}: a file where the folder should be`)
  else await writer.addFile(entry, path)
}

function tooLarge(why: string, flag: string): StalledError {
  return new StalledError('ArchiveTooLarge', `artifact not extracted: ${why} (${flag})`)
}

function extractionFailed(target: string, cause: unknown): ReconcileError {
  return new ReconcileError('ExtractionFailed', `cannot extract into ${target}: ${messageOf(cause)}`, { cause })
}

function isSystemError(err: unknown): boolean {
  return err instanceof Error && 'syscall' in err
}
