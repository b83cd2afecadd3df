import { messageOf, StalledError } from '../runtime/errors.ts'
import { sshAddressOf } from './ssh/address.ts'

/** A repository's address that has passed every check. */
export interface RepositoryUrl {
  /** Without trailing slashes and, but for the user of ssh, without userinfo; what requests and processes get, and what messages show. */
  href: string
  /** Credentials that were written into the URL; used only where no Secret gives any. */
  userinfo?: { username: string; password: string }
}

const maxUrlLength = 2048

/** Checks `spec.url` again, whatever the API server let through. Throws a StalledError `URLInvalid`. */
export function parseRepositoryUrl(text: string): RepositoryUrl {
  checkText(text)
  if (text.startsWith('ssh://')) return { href: sshHref(text) }
  const url = checkedHttp(text)
  const href = `${url.protocol}//${url.host}${url.pathname.replace(/\/+$/, '')}`
  if (!url.username && !url.password) return { href }
  return { href, userinfo: { username: decoded(text, url.username), password: decoded(text, url.password) } }
}

function checkText(text: string): void {
  if (typeof text !== 'string' || text === '') throw invalid('', 'must not be empty')
  if (text.length > maxUrlLength) throw invalid(text, `longer than ${maxUrlLength} characters`)
  if (text.startsWith('-')) throw invalid(text, "must not start with '-'")
  if (/[\p{C}\s\\]/u.test(text)) throw invalid(text, 'contains white space, a control character or a backslash')
  if (!/^(?:https?|ssh):\/\//.test(text))
    throw invalid(text, `must start with http://, https:// or ssh://${hint(text)}`)
  if (text.includes('?') || text.includes('#')) throw invalid(text, 'must not have a query or a fragment')
}

/** `git@host:path` is what scp and many web pages write. */
function hint(text: string): string {
  return /^[^/:@]+@[^/:@]+:[^:]+$/.test(text) ? ', write ssh://user@host/path' : ''
}

function sshHref(text: string): string {
  try {
    return sshAddressOf(text).href
  } catch (err) {
    throw invalid(text, messageOf(err))
  }
}

function checkedHttp(text: string): URL {
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
  const from = new URL(base + suffix)
  const to = redirectTarget(from, location)
  const target = `${to.protocol}//${to.host}${to.pathname}${to.search}`
  if (!target.endsWith(suffix)) throw new Error(`redirected to a URL that does not end with '${suffix}'`)
  return { base: target.slice(0, -suffix.length), credentials: keepsCredentials(from, to) }
}

/** Whether a URL leads to where clouds tell machines their secrets: nobody but the author of a spec may send us there. */
export function isLinkLocal({ hostname }: URL): boolean {
  return linkLocal.test(hostname)
}

/** IPv4, also as IPv6 writes it (RFC 4291 §2.5.5.2), and IPv6, also the unique local addresses of AWS's services; names that clouds have for these. */
const linkLocal = /^(?:169\.254\.|\[(?:fe[89ab]|::ffff:(?:a9fe:|169\.254\.)|fd00:ec2:)|metadata\.google\.internal\.?$)/i

/** Where a server's `location` leads from `from`. Throws an Error that says why nobody goes there. */
export function redirectTarget(from: URL, location: string): URL {
  let to: URL
  try {
    to = new URL(location, from)
  } catch (err) {
    throw new Error('redirected to something that is not a URL', { cause: err })
  }
  if (to.protocol !== 'https:' && to.protocol !== 'http:') throw new Error('redirected to another protocol')
  if (from.protocol === 'https:' && to.protocol === 'http:') throw new Error('redirected from https to http')
  if (isLinkLocal(to)) throw new Error('redirected to a link-local address')
  return to
}

/** Whether what `from` may know may be told to `to`: the same host, and the same port or an upgrade from http to https. */
export function keepsCredentials(from: URL, to: URL): boolean {
  const upgraded = from.protocol === 'http:' && to.protocol === 'https:' && from.port === '' && to.port === ''
  const same = from.protocol === to.protocol && from.port === to.port
  return from.hostname === to.hostname && (same || upgraded)
}
