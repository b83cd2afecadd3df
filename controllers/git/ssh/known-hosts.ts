import { createHmac, timingSafeEqual } from 'node:crypto'
import { makePacer, type Pace } from '../../artifact/archive/pace.ts'
import { defaultSshPort } from './address.ts'

/** A key that is known for a host; sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT". */
export interface KnownKey {
  marker?: 'cert-authority' | 'revoked'
  /** E.g. `ssh-ed25519`. */
  type: string
  /** In base64. */
  key: string
}

const maxBytes = 1024 * 1024
const maxLines = 10_000

/**
 * The keys that a known_hosts file has for a host. A port that is not 22 is looked for as `[host]:port`, and the host alone counts too, as for ssh itself.
 * Throws an Error that names line and rule: all of the file must be well-formed, but keys of unknown types may be in it.
 */
export async function knownKeysOf(text: string, host: string, port: number): Promise<KnownKey[]> {
  checkKnownHostsSize(text)
  const names = port === defaultSshPort ? [host] : [host, `[${host}]:${port}`]
  const pace = makePacer() // lines of others decide how much there is to compare
  const keys: KnownKey[] = []
  for (const [at, line] of text.split('\n').entries()) {
    await pace()
    const words = line.trim().split(/[ \t]+/)
    if (words[0] === '' || words[0]!.startsWith('#')) continue
    try {
      const marker = markerOf(words)
      const [hosts = '', type = '', key = ''] = words
      checkKey(type, key)
      if (await matchesAny(hosts, names, pace)) keys.push({ ...(marker && { marker }), type, key })
    } catch (err) {
      throw new Error(`line ${at + 1} of known_hosts: ${(err as Error).message}`, { cause: err })
    }
  }
  return keys
}

/** Throws an Error where the file is empty or too large to be looked at. */
export function checkKnownHostsSize(text: string): void {
  if (text.trim() === '') throw new Error('known_hosts is empty')
  if (Buffer.byteLength(text) > maxBytes) throw new Error(`known_hosts is longer than ${maxBytes} bytes`)
  let lines = 1
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines++
  if (lines > maxLines) throw new Error(`known_hosts has more than ${maxLines} lines`)
}

/** Takes the marker, if there is one, off the words of a line. */
function markerOf(words: string[]): KnownKey['marker'] {
  if (!words[0]?.startsWith('@')) return undefined
  const marker = words.shift()
  if (marker === '@cert-authority') return 'cert-authority'
  if (marker === '@revoked') return 'revoked'
  throw new Error('its marker is neither @cert-authority nor @revoked')
}

function checkKey(type: string, key: string): void {
  if (!/^[a-z][a-z0-9@.-]{0,63}$/.test(type)) throw new Error('there is no type of key behind the hosts')
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(key)) throw new Error('the key is not base64')
  const blob = Buffer.from(key, 'base64')
  // RFC 4253 §6.6: the key begins with its type as a string.
  const length = blob.length >= 4 ? blob.readUInt32BE(0) : Infinity
  if (length > blob.length - 4 || blob.toString('latin1', 4, 4 + length) !== type) {
    throw new Error(`the key is not of type ${type}`)
  }
}

async function matchesAny(hosts: string, names: readonly string[], pace: Pace): Promise<boolean> {
  if (hosts.startsWith('|')) return matchesHash(hosts, names)
  const patterns = hosts.toLowerCase().split(',')
  for (const name of names) {
    let matched = false
    let refused = false
    for (const pattern of patterns) {
      await pace()
      if (pattern.startsWith('!')) refused ||= matchesPattern(pattern.slice(1), name)
      else matched ||= matchesPattern(pattern, name)
    }
    if (matched && !refused) return true
  }
  return false
}

function matchesHash(hosts: string, names: readonly string[]): boolean {
  const [, salt, hash] = /^\|1\|([A-Za-z0-9+/]{1,128}={0,2})\|([A-Za-z0-9+/]{27}=)$/.exec(hosts) ?? []
  if (salt === undefined || hash === undefined) throw new Error('the hashed host is not |1|salt|hash')
  const expected = Buffer.from(hash, 'base64')
  const hashOf = (name: string) => createHmac('sha1', Buffer.from(salt, 'base64')).update(name).digest()
  return names.some((name) => timingSafeEqual(hashOf(name), expected))
}

const star = 0x2a // *
const mark = 0x3f // ?

/** `*` stands for any characters, `?` for one. Never more steps than the lengths multiplied: only the last `*` is tried again. */
export function matchesPattern(pattern: string, name: string): boolean {
  // Too long a pattern cannot match, however it goes on.
  if (pattern.length > name.length && pattern.replaceAll('*', '').length > name.length) return false
  let at = 0
  let lastStar = -1
  let resume = 0
  for (let i = 0; i < name.length;) {
    const wanted = pattern.charCodeAt(at)
    if (wanted === star) {
      lastStar = at++
      resume = i
    } else if (wanted === mark || wanted === name.charCodeAt(i)) {
      at++
      i++
    } else if (lastStar >= 0) {
      at = lastStar + 1
      i = ++resume
    } else return false
  }
  while (pattern.charCodeAt(at) === star) at++
  return at === pattern.length
}
