import { quote } from '../../controllers/artifact/quote.ts'
import { ArchiveError } from './archive-error.ts'

const maxPathBytes = 4096
const maxNameBytes = 255
const maxDepth = 100

/**
 * The path of an archive's member, relative to the folder it is extracted into; '' for that folder itself. A leading `./` and a folder's trailing `/` are
 * dropped. Throws on everything that could lead elsewhere or that a file system cannot hold.
 */
export function entryPath(raw: string, isFolder: boolean): string {
  const refuse = (why: string) => new ArchiveError(`entry ${quote(raw)}: ${why}`)
  if (Buffer.byteLength(raw) > maxPathBytes) throw refuse(`its path is longer than ${maxPathBytes} bytes`)
  if (raw.includes('\0')) throw refuse('its path holds a NUL')
  if (raw.includes('\\')) throw refuse('its path holds a backslash')
  if (raw.startsWith('/')) throw refuse('its path is absolute')
  if (isFolder && (raw === '.' || raw === './')) return ''
  let path = raw.startsWith('./') ? raw.slice(2) : raw
  if (isFolder && path.endsWith('/')) path = path.slice(0, -1)
  const names = path.split('/')
  if (names.length > maxDepth) throw refuse(`it lies deeper than ${maxDepth} folders`)
  for (const name of names) {
    if (name === '' || name === '.' || name === '..') throw refuse(`its path has a component ${quote(name)}`)
    if (Buffer.byteLength(name) > maxNameBytes) throw refuse(`a name in its path is longer than ${maxNameBytes} bytes`)
  }
  return path
}
