import { readBody } from './bodies.ts'
import { archiveError, checkEntryPath } from './entry-path.ts'
import type { Entries, Entry } from '../entry.ts'
import { ignoreFileName, ignoreLimits, makeIgnore, sortKey } from '../ignore/ignore.ts'
import { makePacer, orAborted, type Pace } from './pace.ts'
import { quote } from '../quote.ts'
import { sortByKey } from './sort.ts'

/** What an archive may hold. Bytes are those of the files that are not ignored; entries and paths count all that the source offers. */
export interface ArchiveLimits {
  maxEntries: number
  maxBytes: number
  maxFileBytes: number
}

/** 500,000 files are five times the Linux kernel's, and take about half a gigabyte of memory. */
export const defaultArchiveLimits: ArchiveLimits = { maxEntries: 500_000, maxBytes: 4 * 2 ** 30, maxFileBytes: 2 ** 30 }

// Memory again: at 500,000 entries this leaves 256 bytes for each path.
const maxTotalPathBytes = 128 * 2 ** 20

/** `keep` keeps the symbolic links that lead to something within the archive; all others are left out and counted. */
export type SymlinkPolicy = 'drop' | 'keep'

/** One file of the archive to be. */
export interface PlannedFile {
  path: string
  mode: number
  sizeBytes: number
  /** Reads the content; at most once. */
  open: Entry['open']
}

/** The files of the archive in their final order. */
export interface ArchivePlan {
  files: PlannedFile[]
  /** Of the files, before compression. */
  contentBytes: number
  ignored: number
}

/** What a plan depends on beside the entries. */
export interface PlanOptions {
  ignore?: string | undefined
  limits: ArchiveLimits
  signal?: AbortSignal | undefined
}

/** Decides what goes into the archive, and in which order, reading nothing but the `.sourceignore` files. */
export async function planArchive(entries: Entries, options: PlanOptions): Promise<ArchivePlan> {
  const pace = makePacer(options.signal)
  const offered = await sortByKey(await collect(entries, options.limits, pace, options.signal), pace)
  await checkNeighbours(offered, pace)
  const ignoreFiles = offered.filter(({ path }) => path === ignoreFileName || path.endsWith(`/${ignoreFileName}`))
  const isIgnored = makeIgnore({
    sourceignores: await readIgnoreFiles(ignoreFiles, options.signal),
    specIgnore: options.ignore,
  })
  const files: PlannedFile[] = []
  let contentBytes = 0
  for (const file of offered) {
    await pace()
    if (isIgnored(file.path)) continue
    contentBytes += file.sizeBytes
    checkSize(file, contentBytes, options.limits)
    files.push(file)
  }
  return { files, contentBytes, ignored: offered.length - files.length }
}

interface OfferedFile extends PlannedFile {
  key: string
}

async function collect(
  entries: Entries,
  { maxEntries }: ArchiveLimits,
  pace: Pace,
  signal: AbortSignal | undefined,
): Promise<OfferedFile[]> {
  const offered: OfferedFile[] = []
  let pathBytes = 0
  for await (const entry of abortable(entries, signal)) {
    const { path, mode, sizeBytes } = entry
    checkEntryPath(path)
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0)
      throw archiveError(`${quote(path)}: invalid size ${sizeBytes}`)
    if (offered.length >= maxEntries) throw overLimit(`more than ${maxEntries} files`, '--artifact-max-entries')
    pathBytes += path.length
    if (pathBytes > maxTotalPathBytes)
      throw archiveError(`the source has paths of more than ${maxTotalPathBytes} bytes together`)
    offered.push({ key: sortKey(path), path, mode, sizeBytes, open: () => entry.open() })
    await pace()
  }
  return offered
}

/** The entries, ended with the signal's reason even when the source hangs. */
async function* abortable(entries: Entries, signal: AbortSignal | undefined): AsyncGenerator<Entry> {
  if (!(Symbol.asyncIterator in entries)) {
    yield* entries
    return
  }
  const iterator = entries[Symbol.asyncIterator]()
  let done = false
  try {
    for (;;) {
      const next = await orAborted(iterator.next(), signal)
      done = next.done === true
      if (next.done) return
      yield next.value
    }
  } finally {
    // Not awaited: a source that hangs would hang here again.
    if (!done) iterator.return?.().catch(() => {})
  }
}

/** Finds what cannot lie in one folder: in this order twins, and a file and what is below it, are neighbours. */
async function checkNeighbours(sorted: OfferedFile[], pace: Pace): Promise<void> {
  for (const [at, file] of sorted.entries()) {
    await pace()
    const before = sorted[at - 1]
    if (before?.key === file.key) throw archiveError(`duplicate path ${quote(file.path)}`)
    if (before && file.key.startsWith(`${before.key}\0`)) {
      throw archiveError(`${quote(before.path)} is both a file and a folder`)
    }
  }
}

function checkSize(file: PlannedFile, contentBytes: number, limits: ArchiveLimits): void {
  if (file.sizeBytes > limits.maxFileBytes) {
    throw overLimit(`a file of more than ${limits.maxFileBytes} bytes, ${quote(file.path)}`, '--artifact-max-file-size')
  }
  if (contentBytes > limits.maxBytes) throw overLimit(`more than ${limits.maxBytes} bytes`, '--artifact-max-size')
}

function overLimit(what: string, flag: string): Error {
  return archiveError(`the source has ${what} (limit set by ${flag})`)
}

/** Their texts by folder. The bodies are kept: a body can be read only once, and these files are part of the archive. */
async function readIgnoreFiles(files: PlannedFile[], signal: AbortSignal | undefined): Promise<Map<string, string>> {
  const texts = new Map<string, string>()
  let totalBytes = 0
  for (const file of files) {
    totalBytes += file.sizeBytes
    if (totalBytes > ignoreLimits.fileBytes) {
      throw archiveError(`the ${ignoreFileName} files have more than ${ignoreLimits.fileBytes} bytes together`)
    }
    const body = await readBody(file, signal)
    file.open = () => Promise.resolve(body)
    texts.set(file.path.slice(0, -ignoreFileName.length - 1), body.toString('utf8'))
  }
  return texts
}
