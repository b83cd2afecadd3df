import { ReconcileError } from '../../runtime/errors.ts'
import { quote } from '../quote.ts'

/** Longest path, longest component (what common file systems take) and deepest nesting that an archive may hold. */
const maxPathBytes = 4096
const maxComponentBytes = 255
const maxDepth = 100

/** The error of an archive that cannot be built. */
export function archiveError(message: string, cause?: unknown): ReconcileError {
  return new ReconcileError('ArchiveOperationFailed', message, cause === undefined ? {} : { cause })
}

/** Throws ArchiveOperationFailed unless a path is safe to extract anywhere. */
export function checkEntryPath(path: string): void {
  const flaw = flawOf(path)
  if (flaw) throw archiveError(`invalid path ${quote(path)}: ${flaw}`)
}

function flawOf(path: string): string | undefined {
  if (path === '') return 'it is empty'
  if (Buffer.byteLength(path) > maxPathBytes) return `it has more than ${maxPathBytes} bytes`
  if (!path.isWellFormed() || path.includes('\ufffd')) return 'it is not valid UTF-8'
  if (path.startsWith('/')) return 'it is absolute'
  if (path.includes('\\')) return 'it contains a backslash'
  if (path.includes('\0')) return 'it contains NUL'
  // Readers that take pax records line by line could be made to see other records in it.
  if (path.includes('\n')) return 'it contains a line break'
  const components = path.split('/')
  if (components.length > maxDepth) return `it is more than ${maxDepth} components deep`
  for (const name of components) {
    const flaw = componentFlaw(name)
    if (flaw) return flaw
  }
  return undefined
}

function componentFlaw(name: string): string | undefined {
  if (name === '') return 'it has an empty component'
  if (name === '.' || name === '..') return `it has the component '${name}'`
  if (Buffer.byteLength(name) > maxComponentBytes) return `it has a component of more than ${maxComponentBytes} bytes`
  if (isGitFolder(name)) return 'it leads into a Git folder'
  return undefined
}

// What HFS+ ignores in names, so that `.g\u200cit` is `.git` there.
const invisible = /[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/g

/** Whether some file system takes the name for `.git`: any case, trailing dots and spaces, streams and short names of NTFS, HFS+. */
function isGitFolder(name: string): boolean {
  // Half a million names are looked at, and nearly all are told by their first character.
  if (!/^[.gG\u0080-\uffff]/.test(name)) return false
  const [plain = ''] = name.replace(invisible, '').toLowerCase().split(':', 1)
  let end = plain.length
  while (plain[end - 1] === '.' || plain[end - 1] === ' ') end--
  const bare = plain.slice(0, end)
  return bare === '.git' || bare === 'git~1'
}
