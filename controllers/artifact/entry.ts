import type { Readable } from 'node:stream'

/** One file or symbolic link that a source offers for its archive. Folders follow from the paths; hard links and devices do not exist here. */
export interface Entry {
  /** Relative, with `/` between components, in the bytes that upstream uses: no `.`, `..`, empty component, backslash or NUL. */
  path: string
  /** Of a symbolic link the content is its target. Defaults to `file`. */
  readonly type?: 'file' | 'symlink'
  /** Only the executable bits are kept: 0o700 where any is set, else 0o600. */
  mode: number
  /** Exact size of the content in bytes. */
  sizeBytes: number
  /**
   * Equal only for equal content, e.g. a blob id together with what tells apart whose credentials gave it: what has been compressed under it
   * before is not read again.
   */
  readonly contentId?: string
  /**
   * Reads the content. Called at most once, in the order of the archive but for `.sourceignore` files and symbolic links, which come first; never for an
   * ignored file, nor for a content that is known by its id.
   */
  open(): Promise<Buffer | Readable>
}

/** What becomes an archive: all files of one revision, in any order. */
export type Entries = AsyncIterable<Entry> | Iterable<Entry>
