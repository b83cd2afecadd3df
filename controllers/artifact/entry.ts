import type { Readable } from 'node:stream'

/** One regular file that a source offers for its archive. Folders follow from the paths; links and devices do not exist here. */
export interface Entry {
  /** Relative, with `/` between components, in the bytes that upstream uses: no `.`, `..`, empty component, backslash or NUL. */
  path: string
  /** Only the executable bits are kept: 0o700 where any is set, else 0o600. */
  mode: number
  /** Exact size of the content in bytes. */
  sizeBytes: number
  /** Reads the content. Called at most once, in the order of the archive, and never for an ignored file. */
  open(): Promise<Buffer | Readable>
}

/** What becomes an archive: all files of one revision, in any order. */
export type Entries = AsyncIterable<Entry> | Iterable<Entry>
