import { WaitingError } from '../controllers/runtime/errors.ts'

const maxUrlLength = 4096

/** The parsed address of an Artifact's bytes. Throws WaitingError `ArtifactInvalid` unless it is a plain http or https URL. */
export function parseArtifactUrl(text: unknown): URL {
  if (typeof text !== 'string' || !text) throw unusable('is missing')
  if (text.length > maxUrlLength) throw unusable(`has more than ${maxUrlLength} characters`)
  // The parser would drop some of these silently, so that what is checked is not what is written.
  if (/[\s\p{Cc}]/u.test(text)) throw unusable('holds white space or control characters')
  const url = URL.parse(text)
  if (!url) throw unusable('is not a URL')
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw unusable('must begin with http:// or https://')
  if (url.username || url.password) throw unusable('must not hold a user name or password')
  url.hash = ''
  return url
}

/** How messages show a URL: without its query, which in pre-signed URLs is a credential. */
export function shownUrl(url: URL): string {
  const shown = url.origin + url.pathname
  return shown.length > 256 ? `${shown.slice(0, 256)}…` : shown
}

/** The same URL at another host, `host` or `host:port`; an empty host changes nothing. */
export function atHost(url: URL, host: string): URL {
  if (!host) return url
  const moved = URL.parse(`${url.protocol}//${host}${url.pathname}${url.search}`)
  if (!moved || moved.username || moved.password) throw new Error(`'${host}' is not a host or host:port`)
  return moved
}

/** The message must not show the text itself: it may hold a password. */
function unusable(why: string): WaitingError {
  return new WaitingError('ArtifactInvalid', `the artifact's spec.url ${why}`)
}
