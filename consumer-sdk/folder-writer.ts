import { type FileHandle, mkdir, open } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { quote } from '../controllers/artifact/quote.ts'
import { Parallel } from './parallel.ts'
import { codeOf } from './system-error.ts'
import { ArchiveError } from './tar/archive-error.ts'
import type { TarEntry } from './tar/reader.ts'
import { writeAll } from './write.ts'

/** What an extraction has written. */
export interface Extracted {
  files: number
  folders: number
  /** Bytes of content in all files. */
  bytes: number
  /** Symbolic links that were left out. */
  skippedLinks: number
}

/** Files up to this size are written side by side: it is not the disk that takes the time, but the way to it. */
const smallBytes = 256 * 1024
const filesAtOnce = 8

type Content = Pick<TarEntry, 'mode' | 'sizeBytes' | 'body'>

/**
 * Fills a folder that was empty and that nobody else writes to. Nothing is ever opened that exists, so that the target's own file system tells which names
 * are the same to it (case, Unicode forms), and no link can be followed because none is made.
 */
export class FolderWriter {
  readonly #root: string
  readonly #folders: Set<string> = new Set([''])
  readonly #portable: Map<string, string> | undefined
  readonly #small = new Parallel(filesAtOnce)
  readonly written: Extracted = { files: 0, folders: 0, bytes: 0, skippedLinks: 0 }

  /** With `portableNames`, names that any common file system takes as one collide as well. */
  constructor(root: string, portableNames = false) {
    this.#root = root
    this.#portable = portableNames ? new Map() : undefined
  }

  /** Makes a folder and those above it. Once more is fine: archives list folders before or after their content. */
  async addFolder(path: string): Promise<void> {
    if (this.#folders.has(path)) return
    await this.addFolder(parentOf(path))
    this.#claim(path)
    await exclusively(path, () => mkdir(join(this.#root, path), 0o700))
    this.#folders.add(path)
    this.written.folders++
  }

  /** Adds a file; of its mode only the executable bits count, and only for the owner. It is complete after `finish`. */
  async addFile({ mode, sizeBytes, body }: Content, path: string): Promise<void> {
    await this.addFolder(parentOf(path))
    this.#claim(path)
    const permissions = mode & 0o111 ? 0o700 : 0o600
    const place = join(this.#root, path)
    const make = () => exclusively(path, () => open(place, 'wx', permissions))
    if (sizeBytes > smallBytes) await fill(await make(), body)
    else {
      const chunks: Buffer[] = []
      for await (const chunk of body) chunks.push(chunk)
      await this.#small.start(async () => fill(await make(), chunks))
    }
    this.written.files++
    this.written.bytes += sizeBytes
  }

  /** Resolves when all that was added has been written. */
  finish(): Promise<void> {
    return this.#small.finish()
  }

  /** Resolves when nothing is being written any more, whatever came of it. */
  settle(): Promise<void> {
    return this.#small.settle()
  }

  #claim(path: string): void {
    if (!this.#portable) return
    // Upper case first: it is what makes one of ß and ss.
    const folded = path.normalize('NFKD').toUpperCase().toLowerCase()
    const other = this.#portable.get(folded)
    if (other !== undefined)
      throw new ArchiveError(`entries ${quote(other)} and ${quote(path)} differ only in case or Unicode form`)
    this.#portable.set(folded, path)
  }
}

async function fill(handle: FileHandle, body: AsyncIterable<Buffer> | Iterable<Buffer>): Promise<void> {
  try {
    for await (const chunk of body) await writeAll(handle, chunk)
  } finally {
    await handle.close()
  }
}

function parentOf(path: string): string {
  const parent = dirname(path)
  return parent === '.' ? '' : parent
}

async function exclusively<R>(path: string, make: () => Promise<R>): Promise<R> {
  try {
    return await make()
  } catch (err) {
    if (codeOf(err) !== 'EEXIST') throw err
    throw new ArchiveError(`entry ${quote(path)}: another one has the same name on this file system`)
  }
}
