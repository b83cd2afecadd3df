import semver from 'semver'
import type { SemVer } from 'semver'

/** A set of versions, written as Flux and Helm users write it (the syntax and semantics of Masterminds/semver 3). */
export interface VersionRange {
  includes(version: SemVer): boolean
}

interface Comparator {
  operator: string
  /** The version written, with 0 for what is missing or a wildcard. */
  bound: SemVer
  /** How many of major, minor and patch are written as numbers. */
  precision: number
}

const maxRangeLength = 4096
const identifiers = '[0-9A-Za-z-]+(?:\\.[0-9A-Za-z-]+)*'
const part = '(?:\\d+|[xX*])'
const partialVersion = new RegExp(
  `v?(${part})(?:\\.(${part}))?(?:\\.(${part}))?(?:-(${identifiers}))?(?:\\+${identifiers})?`,
  'y',
)
const operator = /\s*(!=|>=|=>|<=|=<|~>|=|>|<|~|\^)?\s*/y
const separator = /\s*,\s*|\s+/y
const hyphen = /\s+-\s+/y

/**
 * Reads `>=1.0.0, <2.0.0`, `1.x || ^3`, `~1.2`, `!=1.5.0`, `1.0 - 2.0` and the like.
 * A prerelease is included only by an alternative that itself names a prerelease. Throws a RangeError for anything else.
 */
export function parseRange(text: string): VersionRange {
  if (text.length > maxRangeLength) throw new RangeError(`longer than ${maxRangeLength} characters`)
  const alternatives = text.split('||').map(parseAlternative)
  return { includes: (version) => alternatives.some((comparators) => satisfiesAll(version, comparators)) }
}

/**
 * Reads a version with exactly three numbers, as Git tags have it: a leading `v` and leading zeros are fine (`v2025.07.03`).
 * Returns undefined for every other text.
 */
export function parseVersion(text: string): SemVer | undefined {
  if (text.length > 256) return undefined
  const match = /^v?(\d+)\.(\d+)\.(\d+)([-+].*)?$/s.exec(text)
  if (!match) return undefined
  return semver.parse(`${Number(match[1])}.${Number(match[2])}.${Number(match[3])}${match[4] ?? ''}`) ?? undefined
}

function parseAlternative(text: string): Comparator[] {
  const trimmed = text.trim()
  const comparators: Comparator[] = []
  let at = 0
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at
    const match = pattern.exec(trimmed)
    if (match) at += match[0].length
    return match
  }
  const version = (): RegExpExecArray => {
    const match = take(partialVersion)
    if (!match) throw new RangeError(`improper constraint: ${trimmed.slice(0, 100)}`)
    return match
  }
  do {
    const symbol = take(operator)?.[1] ?? ''
    const bound = version()
    if (symbol === '' && take(hyphen)) comparators.push(comparator('>=', bound), comparator('<=', version()))
    else comparators.push(comparator(symbol, bound))
    if (at === trimmed.length) return comparators
  } while (take(separator))
  throw new RangeError(`improper constraint: ${trimmed.slice(0, 100)}`)
}

function comparator(symbol: string, [, major, minor, patch, prerelease]: RegExpExecArray): Comparator {
  const parts = [major, minor, patch]
  const wildcard = parts.findIndex((p) => p === undefined || !/^\d+$/.test(p))
  const precision = wildcard < 0 ? 3 : wildcard
  const numbers = parts.map((p, i) => (i < precision ? Number(p) : 0))
  const bound = semver.parse(numbers.join('.') + (prerelease ? `-${prerelease}` : ''))
  if (!bound) throw new RangeError(`improper version: ${parts.filter(Boolean).join('.')}`)
  return { operator: symbol, bound, precision }
}

function satisfiesAll(version: SemVer, comparators: Comparator[]): boolean {
  if (version.prerelease.length > 0 && !comparators.some((c) => c.bound.prerelease.length > 0)) return false
  return comparators.every((c) => satisfies(version, c))
}

function satisfies(version: SemVer, { operator: symbol, bound, precision }: Comparator): boolean {
  const order = version.compare(bound)
  const within = sharedParts(version, bound)
  switch (symbol) {
    case '!=':
      return precision === 3 ? order !== 0 : within < precision
    case '>':
      return order > 0 && (precision === 3 || within < precision)
    case '<':
      return order < 0
    case '>=':
    case '=>':
      return order >= 0
    case '<=':
    case '=<':
      return order <= 0 || (precision < 3 && within >= precision)
    case '^':
      return order >= 0 && within >= Math.min(precision, leadingZeros(bound) + 1)
    case '~':
    case '~>':
      // Upstream takes `~0.0.0` for "anything"; users have manifests that rely on it.
      return order >= 0 && (within >= Math.min(precision, 2) || (precision === 3 && isZero(bound)))
    default:
      return precision === 3 ? order === 0 : order >= 0 && within >= precision
  }
}

/** How many of major, minor, patch are equal, counted from the left. */
function sharedParts(a: SemVer, b: SemVer): number {
  if (a.major !== b.major) return 0
  if (a.minor !== b.minor) return 1
  return a.patch === b.patch ? 3 : 2
}

function leadingZeros(version: SemVer): number {
  if (version.major > 0) return 0
  return version.minor > 0 ? 1 : 2
}

function isZero(version: SemVer): boolean {
  return version.major === 0 && version.minor === 0 && version.patch === 0
}
