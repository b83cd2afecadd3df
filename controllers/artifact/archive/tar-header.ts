import { Header, Pax } from 'tar'
import type { PlannedFile } from './archive-plan.ts'

const blockBytes = 512
const maxOctalSize = 0o77777777777
const epoch = new Date(0)

/** The two empty blocks that end an archive. */
export const endOfArchive: Buffer = Buffer.alloc(2 * blockBytes)

/** How many of the folders above `path` are above `previous` as well, and so have their headers already. */
export function sharedFolders(previous: string, path: string): number {
  let shared = 0
  const length = Math.min(previous.lastIndexOf('/'), path.lastIndexOf('/'))
  for (let at = 0; at <= length && previous[at] === path[at]; at++) if (path[at] === '/') shared++
  return shared
}

/**
 * The headers (POSIX.1-2001 pax) that stand before a file's content, those of the folders above it first, less the `shared` outermost. They depend on path,
 * kind and size alone: no owner, no time, folders 0750, files 0600 or 0700, links 0777.
 */
export function headersOf({ path, mode, sizeBytes, target }: PlannedFile, shared: number): Buffer[] {
  const folders = path.split('/').slice(0, -1)
  const headers: Buffer[] = []
  for (let depth = shared + 1; depth <= folders.length; depth++) {
    headers.push(...encoded({ path: folders.slice(0, depth).join('/'), type: 'Directory', mode: 0o750, size: 0 }))
  }
  if (target !== undefined) {
    headers.push(...encoded({ path, type: 'SymbolicLink', mode: 0o777, size: 0, linkpath: target }))
  } else headers.push(...encoded({ path, type: 'File', mode: isExecutable(mode) ? 0o700 : 0o600, size: sizeBytes }))
  return headers
}

/** Whether any executable bit is set: all that an archive keeps of a mode. */
export function isExecutable(mode: number): boolean {
  return (mode & 0o111) !== 0
}

/** What fills up the last block of a content. */
export function paddingOf({ sizeBytes }: PlannedFile): Buffer {
  return Buffer.alloc(-sizeBytes & (blockBytes - 1))
}

interface Fields {
  path: string
  type: 'File' | 'Directory' | 'SymbolicLink'
  mode: number
  size: number
  linkpath?: string
}

function encoded(fields: Fields): Buffer[] {
  const block = Buffer.alloc(blockBytes)
  const needsPax = new Header({ ...fields, uid: 0, gid: 0, uname: '', gname: '', mtime: epoch }).encode(block)
  if (!needsPax) return [block]
  const { path, size, linkpath } = fields
  // Only what a plain header cannot say: every further record would be one more thing that could differ.
  return [new Pax({ path, ...(size > maxOctalSize && { size }), ...(linkpath && { linkpath }) }).encode(), block]
}
