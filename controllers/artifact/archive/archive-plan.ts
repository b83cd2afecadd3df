import { readBody } from './bodies.ts'
import { archiveError, checkEntryPath } from './entry-path.ts'
import type { Entries, Entry } from '../entry.ts'
import { ignoreFileName, ignoreLimits, makeIgnore, sortKey } from '../ignore/ignore.ts'
import { makePacer, type Pace } from './pace.ts'
import { quote } from '../quote.ts'
import { sortByKey } from './sort.ts'
import { keepableLinks, readTargets } from './symlinks.ts'

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

/** One file or symbolic link of the archive to be. */
export interface PlannedFile {
  path: string
  mode: number
  sizeBytes: number
  /** Of a symbolic link, which then has no content. */
  target?: string | undefined
  contentId?: string | undefined
  /** Reads the content; at most once. */
  open: Entry['open']
}

/** What goes into the archive, in its final order. */
export interface ArchivePlan {
  files: PlannedFile[]
  /** Of the files, before compression. */
  contentBytes: number
  ignored: number
  /** Symbolic links that are neither ignored nor kept. */
  droppedSymlinks: number
}

/** What a plan depends on beside the entries. */
export interface PlanOptions {
  ignore?: string | undefined
  limits: ArchiveLimits
  /** Defaults to `drop`. */
  symlinks?: SymlinkPolicy | undefined
  signal?: AbortSignal | undefined
}

/** Decides what goes into the archive, and in which order, reading nothing but the `.sourceignore` files and the targets of links to keep. */
export async function planArchive(entries: Entries, options: PlanOptions): Promise<ArchivePlan> {
  const pace = makePacer(options.signal)
  const offered = await sortByKey(await collect(entries, options.limits, pace, options.signal), pace)
  await checkNeighbours(offered, pace)
  const ignoreFiles = offered.filter((file) => !file.isLink && isIgnoreFile(file.path))
  const isIgnored = makeIgnore({
    sourceignores: await readIgnoreFiles(ignoreFiles, options.signal),
    specIgnore: options.ignore,
  })
  const wanted: OfferedFile[] = []
  let contentBytes = 0
  for (const file of offered) {
    await pace()
    if (isIgnored(file.path)) continue
    wanted.push(file)
    if (file.isLink) continue
    contentBytes += file.sizeBytes
    checkSize(file, contentBytes, options.limits)
  }
  const files = await withoutDropped(wanted, options, pace)
  return {
    files,
    contentBytes,
    ignored: offered.length - wanted.length,
    droppedSymlinks: wanted.length - files.length,
  }
}

/** All files, and the links that the policy keeps; these know their target and have no content any more. */
async function withoutDropped(wanted: OfferedFile[], options: PlanOptions, pace: Pace): Promise<OfferedFile[]> {
  const links = wanted.filter(({ isLink }) => isLink)
  if (links.length === 0) return wanted
  const files = wanted.filter(({ isLink }) => !isLink)
  if (options.symlinks !== 'keep') return files
  const kept = await keepableLinks(files, await readTargets(links, options.signal), pace)
  return wanted.filter((each) => {
    if (!each.isLink) return true
    const target = kept.get(each.path)
    if (target !== undefined) each.becomeLink(target)
    return target !== undefined
  })
}

/** A class, so that half a million of them need no functions of their own. */
class OfferedFile implements PlannedFile {
  readonly key: string
  readonly path: string
  readonly mode: number
  readonly isLink: boolean
  readonly contentId: string | undefined
  sizeBytes: number
  target: string | undefined = undefined
  #entry: Pick<Entry, 'open'>

  constructor(entry: Entry) {
    this.key = sortKey(entry.path)
    this.path = entry.path
    this.mode = entry.mode
    this.isLink = entry.type === 'symlink'
    this.contentId = entry.contentId
    this.sizeBytes = entry.sizeBytes
    this.#entry = entry
  }

  open(): ReturnType<Entry['open']> {
    return this.#entry.open()
  }

  /** A body can be read only once: this one has been read already. */
  becomeRead(body: Buffer): void {
    this.#entry = { open: () => Promise.resolve(body) }
  }

  becomeLink(target: string): void {
    this.target = target
    this.sizeBytes = 0
    this.becomeRead(Buffer.alloc(0))
  }
}

function isIgnoreFile(path: string): boolean {
  return path === ignoreFileName || path.endsWith(`/${ignoreFileName}`)
}

async function collect(
  entries: Entries,
  { maxEntries }: ArchiveLimits,
  pace: Pace,
  signal: AbortSignal | undefined,
): Promise<OfferedFile[]> {
  const offered: OfferedFile[] = []
  let pathBytes = 0
  const add = (entry: Entry): Promise<void> | undefined => {
    const { path, sizeBytes } = entry
    checkEntryPath(path)
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0)
      throw archiveError(`${quote(path)}: invalid size ${sizeBytes}`)
    if (offered.length >= maxEntries) throw overLimit(`more than ${maxEntries} files`, '--artifact-max-entries')
    pathBytes += path.length
    if (pathBytes > maxTotalPathBytes)
      throw archiveError(`the source has paths of more than ${maxTotalPathBytes} bytes together`)
    offered.push(new OfferedFile(entry))
    return pace()
  }
  if (Symbol.asyncIterator in entries) for await (const entry of abortable(entries, signal)) await add(entry)
  else for (const entry of entries) await add(entry) // apart: quicker without an iterator of ours
  return offered
}

/** The entries, ended with the signal's reason even when the source hangs. */
async function* abortable(entries: AsyncIterable<Entry>, signal: AbortSignal | undefined): AsyncGenerator<Entry> {
  const iterator = entries[Symbol.asyncIterator]()
  let done = false
  let giveUp: (reason: unknown) => void = () => {}
  const onAbort = (): void => giveUp(signal?.reason)
  // One listener for all: there may be half a million entries.
  signal?.addEventListener('abort', onAbort)
  try {
    for (;;) {
      signal?.throwIfAborted()
      const next = await new Promise<IteratorResult<Entry>>((resolve, reject) => {
        giveUp = reject
        iterator.next().then(resolve, reject)
      })
      done = next.done === true
      if (next.done) return
      yield next.value
    }
  } finally {
    signal?.removeEventListener('abort', onAbort)
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
async function readIgnoreFiles(files: OfferedFile[], signal: AbortSignal | undefined): Promise<Map<string, string>> {
  const texts = new Map<string, string>()
  let totalBytes = 0
  for (const file of files) {
    totalBytes += file.sizeBytes
    if (totalBytes > ignoreLimits.fileBytes) {
      throw archiveError(`the ${ignoreFileName} files have more than ${ignoreLimits.fileBytes} bytes together`)
    }
    const body = await readBody(file, signal)
    file.becomeRead(body)
    texts.set(file.path.slice(0, -ignoreFileName.length - 1), body.toString('utf8'))
  }
  return texts
}
