import { ReconcileError } from '../../runtime/errors.ts'
import { quote } from '../quote.ts'

/** Ends the name of every stored archive. */
export const archiveSuffix = '.tar.gz'
/** The name under which the current file of an object is served, and a relative link to it on disk. */
export const latestName = `latest${archiveSuffix}`
/** What belongs to the storage itself; no served name starts with a dot. */
export const ownFolder = '.openflux'

/** Room for `-<hex of sha512>.tar.gz` and the suffix of a temporary name within the 255 bytes of a file system. */
const maxFileNameLength = 100

const label = '[a-z0-9](?:[a-z0-9-]*[a-z0-9])?'
const subdomain = new RegExp(`^${label}(?:\\.${label})*$`)
const fileName = /^[A-Za-z0-9_+-][A-Za-z0-9._:+=@-]*$/

/** The two parts of `<kind>/<namespace>/<name>/<file>`. */
export interface StoredPath {
  folder: string
  file: string
}

/** Whether a text is `<kind>/<namespace>/<name>`, each a DNS subdomain as Kubernetes has it: nothing in it can climb or hide. */
export function isFolder(text: string): boolean {
  const parts = text.split('/', 4)
  return parts.length === 3 && parts.every((part) => part.length <= 253 && subdomain.test(part))
}

/** The parts of a stored file's path; undefined for anything that could not be one. */
export function parsePath(path: string): StoredPath | undefined {
  if (path.length > 1100) return undefined
  const slash = path.lastIndexOf('/')
  const folder = path.slice(0, Math.max(slash, 0))
  const file = path.slice(slash + 1)
  if (!isFolder(folder) || file.length > 255 || !fileName.test(file) || !file.endsWith(archiveSuffix)) return undefined
  return { folder, file }
}

/** Throws InvalidPath unless `folder` is `<kind>/<namespace>/<name>`. */
export function checkFolder(folder: string): void {
  if (!isFolder(folder)) throw invalidPath(`storage folder ${quote(folder)} is not <kind>/<namespace>/<name>`)
}

/** Throws InvalidPath unless `name` can be the start of a file's name. */
export function checkFileName(name: string): void {
  const rule = `must have 1 to ${maxFileNameLength} of A-Z a-z 0-9 . _ : + = @ - and neither start with a dot nor be 'latest'`
  const valid = fileName.test(name) && name.length <= maxFileNameLength && `${name}${archiveSuffix}` !== latestName
  if (!valid) throw invalidPath(`file name ${quote(name)} ${rule}`)
}

function invalidPath(message: string): ReconcileError {
  return new ReconcileError('InvalidPath', message)
}
