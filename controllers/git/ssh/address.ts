import { isIPv6 } from 'node:net'

/** Where a repository is and as whom it is asked for, over ssh. */
export interface SshAddress {
  /** The URL again, written in the one way that messages and the names of mirrors have. */
  href: string
  /** The one in the URL, else `git`. */
  user: string
  /** Lower case; an IPv6 address without brackets. */
  host: string
  port: number
  /** As the server gets it: percent-decoded, absolute or beginning with `~`. */
  path: string
}

export const defaultSshPort = 22
const defaultUser = 'git'

const form = /^ssh:\/\/(?:([^/?#@]*)@)?(\[[^/\]]*\]|[^/:]*)(?::([^/]*))?(\/.*)?$/
// What ssh, git and shells read as options or as something else than a name cannot be written with these.
const userName = /^[a-z0-9_][a-z0-9_.+=~-]{0,127}$/i
const hostName = /^[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_.])?$/i

/** Takes `ssh://[user@]host[:port]/path` apart. Throws an Error that names the rule it breaks. */
export function sshAddressOf(text: string): SshAddress {
  const [, user, writtenHost = '', port = defaultSshPort, writtenPath = ''] = form.exec(text) ?? []
  if (user?.includes(':')) throw new Error('ssh takes no password, only the key in the Secret')
  if (user !== undefined && !userName.test(user)) throw new Error('the user is not a plain name')
  if (!/^[1-9]\d{0,4}$/.test(String(port)) || Number(port) > 65_535)
    throw new Error('the port is not a number up to 65535')
  const host = hostOf(writtenHost)
  const encoded = writtenPath.replace(/\/+$/, '')
  const shownUser = user === undefined ? '' : `${user}@`
  const shownPort = Number(port) === defaultSshPort ? '' : `:${port}`
  const href = `ssh://${shownUser}${host.includes(':') ? `[${host}]` : host}${shownPort}${encoded}`
  return { href, user: user ?? defaultUser, host, port: Number(port), path: pathOf(encoded) }
}

function hostOf(written: string): string {
  if (written === '') throw new Error('host is missing')
  if (written.startsWith('-')) throw new Error("the host must not start with '-'")
  const host = written.toLowerCase()
  if (host.startsWith('[') && isIPv6(host.slice(1, -1)) && !host.includes('%')) return host.slice(1, -1)
  if (!hostName.test(host)) throw new Error('the host is neither a name nor an address')
  return host
}

/** Git decodes the path of a URL, and takes the slash before a `~` for a separator. */
function pathOf(encoded: string): string {
  let path: string
  try {
    path = decodeURIComponent(encoded)
  } catch {
    throw new Error('the path is not percent-encoded correctly')
  }
  if (path === '') throw new Error('the path is missing')
  if (/\p{C}/u.test(path)) throw new Error('the path contains a control character')
  return path.startsWith('/~') ? path.slice(1) : path
}
