import type { HistoryQuery } from '../storage/history.ts'
import { isFolder, parsePath } from '../storage/paths.ts'

/** What a request asks for: a stored path, an artifact by address, or nothing we could have. */
export type RequestTarget =
  { path: string } | { folder: string; query: HistoryQuery } | { status: 400 | 404 | 414; message: string }

/** Longer than any address of ours: three names of 253 characters and a revision. */
const maxUrlLength = 8192

const addresses = ['revision', 'digest', 'time'] as const
const rfc3339 = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)$/
const notFound = { status: 404, message: 'not found' } as const

/**
 * Reads the target of a request: `/<kind>/<namespace>/<name>/<file>`, or `/<kind>/<namespace>/<name>` with one of `?revision=`, `?digest=`,
 * `?time=`. Percent-encoding is undone once per component; what then could lead elsewhere is refused, not cleaned.
 */
export function parseTarget(url: string): RequestTarget {
  if (url.length > maxUrlLength) return { status: 414, message: `the URL has more than ${maxUrlLength} characters` }
  const questionMark = url.indexOf('?')
  const rawPath = questionMark < 0 ? url : url.slice(0, questionMark)
  const components = rawPath.split('/').map(decode)
  if (components[0] !== '' || components.some((name) => name === undefined || !isHarmless(name))) {
    return { status: 400, message: 'invalid path' }
  }
  const path = components.slice(1).join('/')
  if (parsePath(path)) return { path }
  return isFolder(path) ? parseAddress(path, questionMark < 0 ? '' : url.slice(questionMark + 1)) : notFound
}

function isHarmless(component: string): boolean {
  return component !== '.' && component !== '..' && !/[/\\\p{Cc}]/u.test(component)
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined // not percent-encoded UTF-8
  }
}

function parseAddress(folder: string, rawQuery: string): RequestTarget {
  const given: [string, string][] = []
  for (const parameter of rawQuery.split('&')) {
    const equals = parameter.indexOf('=')
    const name = decode(parameter.slice(0, Math.max(equals, 0)))
    // A plus stays a plus: revisions and time zones have them, and no value has a space.
    const value = decode(parameter.slice(equals + 1))
    if (addresses.some((address) => address === name)) given.push([name!, value ?? ''])
  }
  if (given.length === 0) return notFound
  const [[name, value] = ['', '']] = given
  if (given.length > 1 || value === '') return { status: 400, message: `give one of ${addresses.join(', ')}, once` }
  if (name === 'revision') return { folder, query: { revision: value } }
  if (name === 'digest') return { folder, query: { digest: value } }
  const time = new Date(rfc3339.test(value) ? value : NaN)
  if (Number.isNaN(time.getTime())) return { status: 400, message: 'time is not an RFC 3339 time' }
  return { folder, query: { time } }
}
