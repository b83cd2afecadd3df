import { StalledError } from '../../runtime/errors.ts'

const field = 'spec.sparseCheckout'
const maxPaths = 1000
const maxPathBytes = 4096
// They are arguments of git.
const maxTotalBytes = 64 * 1024

/**
 * The files and folders of `spec.sparseCheckout`, sorted, none of them twice or within another; undefined for everything. Throws a StalledError that
 * names the entry.
 */
export function sparsePathsOf(entries: readonly string[] = []): string[] | undefined {
  if (entries.length === 0) return undefined
  if (entries.length > maxPaths) throw invalid(field, `has ${entries.length} entries, at most ${maxPaths} are allowed`)
  const paths = new Set(entries.map(normalized))
  if (paths.has('')) return undefined
  const sorted = Array.from(paths).toSorted()
  if (Buffer.byteLength(sorted.join()) > maxTotalBytes) throw invalid(field, `has more than ${maxTotalBytes} bytes`)
  return sorted
}

/** Of sorted paths those that are not within another. */
export function outermost(paths: readonly string[]): string[] {
  const all = new Set(paths)
  return paths.filter((path) => !parentsOf(path).some((parent) => all.has(parent)))
}

/** `a` and `a/b` of `a/b/c`. */
function parentsOf(path: string): string[] {
  const components = path.split('/')
  return components.slice(1).map((_, i) => components.slice(0, i + 1).join('/'))
}

function normalized(entry: string, at: number): string {
  const rule = brokenRule(entry)
  if (rule) throw invalid(`${field}[${at}]`, rule)
  return entry
    .split('/')
    .filter((component) => component !== '' && component !== '.')
    .join('/')
}

function brokenRule(entry: string): string | undefined {
  if (Buffer.byteLength(entry) > maxPathBytes) return `is longer than ${maxPathBytes} bytes`
  if (/[\p{Cc}\p{Cs}]/u.test(entry)) return 'contains a control character'
  if (entry.startsWith('/')) return 'must not be absolute'
  if (entry.startsWith('-')) return "must not start with '-'"
  if (entry.includes('\\')) return 'contains a backslash'
  if (entry.split('/').includes('..')) return "contains '..'"
  return undefined
}

function invalid(what: string, rule: string): StalledError {
  return new StalledError('GitOperationFailed', `invalid ${what}: ${rule}`)
}
