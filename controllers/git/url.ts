import { StalledError } from '../runtime/errors.ts'

/** A repository's address that has passed every check. */
export interface RepositoryUrl {
  /** Without userinfo and trailing slashes; what requests and processes get, and what messages show. */
  href: string
  /** Credentials that were written into the URL; used only where no Secret gives any. */
  userinfo?: { username: string; password: string }
}

const maxUrlLength = 2048

/** Checks `spec.url` again, whatever the API server let through. Throws a StalledError `URLInvalid`. */
export function parseRepositoryUrl(text: string): RepositoryUrl {
  const url = checked(text)
  const href = `${url.protocol}//${url.host}${url.pathname.replace(/\/+$/, '')}`
  if (!url.username && !url.password) return { href }
  return { href, userinfo: { username: decoded(text, url.username), password: decoded(text, url.password) } }
}

function checked(text: string): URL {
  if (typeof text !== 'string' || text === '') throw invalid('', 'must not be empty')
  if (text.length > maxUrlLength) throw invalid(text, `longer than ${maxUrlLength} characters`)
  if (text.startsWith('-')) throw invalid(text, "must not start with '-'")
  if (/[\p{C}\s\\]/u.test(text)) throw invalid(text, 'contains white space, a control character or a backslash')
  if (text.startsWith('ssh://')) throw invalid(text, 'ssh is not supported yet, use https')
  if (!/^https?:\/\//.test(text)) throw invalid(text, 'must start with http:// or https://')
  let url: URL
  try {
    url = new URL(text)
  } catch {
    // The parser's own message repeats the URL, credentials included.
    throw invalid(text, 'not a URL')
  }
  // `https:///x` is read as `https://x`, which is not what is written.
  if (url.hostname === '' || /^https?:\/\/(?:[^/@]*@)?[/?#:]/.test(text)) throw invalid(text, 'host is missing')
  if (url.hostname.startsWith('-')) throw invalid(text, "the host must not start with '-'")
  if (text.includes('?') || text.includes('#')) throw invalid(text, 'must not have a query or a fragment')
  return url
}

function decoded(text: string, component: string): string {
  try {
    return decodeURIComponent(component)
  } catch {
    throw invalid(text, 'the credentials in it are not percent-encoded correctly')
  }
}

function invalid(text: string, why: string): StalledError {
  return new StalledError('URLInvalid', `failed to parse url '${shown(text)}': ${why}`)
}

/** What of an unchecked URL may be shown: nothing that could be part of a credential, nothing that could upset a terminal. */
function shown(text: string): string {
  const [scheme, rest] = /^([a-z+]*:\/\/)?(.*)$/s.exec(text)?.slice(1) ?? []
  // A password may hold any of these unencoded; only where it is clear what the userinfo is, the rest can be shown.
  const clear =
    /^(?:[^/?#@]*@)?([^@?#]*)$/s.exec(rest ?? '') ?? (rest?.includes('@') ? undefined : /^([^?#]*)/s.exec(rest ?? ''))
  const printable = `${scheme ?? ''}${clear?.[1] ?? '***'}`.replace(/\p{C}/gu, '?')
  return printable.length > 200 ? `${printable.slice(0, 200)}...` : printable
}

/**
 * Where a redirect leads: the new base URL for a request that was sent to `base + suffix`. Throws an Error that says why not.
 * `credentials` tells whether the ones for `base` may be sent there: same host, and the same port or an upgrade from http to https.
 */
export function followRedirect(base: string, suffix: string, location: string): { base: string; credentials: boolean } {
  let to: URL
  const from = new URL(base)
  try {
    to = new URL(location, base + suffix)
  } catch (err) {
    throw new Error('redirected to something that is not a URL', { cause: err })
  }
  if (to.protocol !== 'https:' && to.protocol !== 'http:') throw new Error('redirected to another protocol')
  if (from.protocol === 'https:' && to.protocol === 'http:') throw new Error('redirected from https to http')
  if (/^(?:169\.254\.|\[fe[89ab])/i.test(to.hostname)) throw new Error('redirected to a link-local address')
  const target = `${to.protocol}//${to.host}${to.pathname}${to.search}`
  if (!target.endsWith(suffix)) throw new Error(`redirected to a URL that does not end with '${suffix}'`)
  const upgraded = from.protocol === 'http:' && to.protocol === 'https:' && from.port === '' && to.port === ''
  const same = from.protocol === to.protocol && from.port === to.port
  return { base: target.slice(0, -suffix.length), credentials: from.hostname === to.hostname && (same || upgraded) }
}
