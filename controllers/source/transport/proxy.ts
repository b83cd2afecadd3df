import { isIP } from 'node:net'
import type { SecretData } from '../../runtime/secret.ts'
import type { Proxy } from './transport.ts'

const maxAddressLength = 2048
/** RFC 1929 has one byte for each length. */
const maxSocksBytes = 255

/**
 * The proxy that a Secret describes: `address`, and optionally `username` and `password`. `shown` is `namespace/name`. Throws an Error that names the key and
 * what is wrong with it, never its value.
 */
export function proxyFromSecret(data: SecretData, shown: string): Proxy {
  const address = data['address']?.toString() ?? ''
  if (address === '') throw new Error(`secret '${shown}': key 'address' not found`)
  const url = checkedAddress(address, (why) => new Error(`secret '${shown}': 'address' ${why}`))
  const username = data['username']?.toString() || decoded(url.username)
  const password = data['password']?.toString() || decoded(url.password)
  if (password && !username) throw new Error(`secret '${shown}' contains 'password' but missing 'username'`)
  if (username.includes(':')) throw new Error(`secret '${shown}': 'username' contains ':'`)
  for (const [name, value] of Object.entries({ username, password })) {
    // eslint-disable-next-line no-control-regex -- they are what has no place here
    if (/[\u0000-\u001f\u007f]/.test(value))
      throw new Error(`secret '${shown}': '${name}' contains a control character`)
    if (url.protocol === 'socks5:' && Buffer.byteLength(value) > maxSocksBytes)
      throw new Error(`secret '${shown}': '${name}' is longer than the ${maxSocksBytes} bytes that SOCKS5 allows`)
  }
  return {
    url: `${url.protocol}//${url.host}`,
    ...(username ? { username } : {}),
    ...(password ? { password } : {}),
  }
}

function checkedAddress(address: string, failed: (why: string) => Error): URL {
  if (address.length > maxAddressLength) throw failed(`is longer than ${maxAddressLength} characters`)
  if (/[\p{C}\s\\]/u.test(address)) throw failed('contains white space, a control character or a backslash')
  if (!/^(?:https?|socks5):\/\//.test(address)) throw failed('must start with http://, https:// or socks5://')
  if (!URL.canParse(address)) throw failed('is not a URL')
  const url = new URL(address)
  if (url.hostname === '' || url.hostname.startsWith('-')) throw failed('has no valid host')
  // Our client cannot tell such a server which certificate it wants.
  if (url.protocol === 'https:' && isIP(url.hostname.replace(/^\[|\]$/g, '')))
    throw failed('with https must name its host, not give an IP address')
  if ((url.pathname !== '/' && url.pathname !== '') || url.search || url.hash)
    throw failed('must not have a path, a query or a fragment')
  if (url.protocol === 'socks5:' && url.port === '') url.port = '1080'
  return url
}

function decoded(component: string): string {
  try {
    return decodeURIComponent(component)
  } catch {
    return component // as it is written
  }
}

/** A proxy's address with its credentials in it, percent-encoded; `scheme` replaces the one it has. */
export function proxyWithCredentials({ url, username = '', password = '' }: Proxy, scheme?: string): string {
  const [, own = '', host = ''] = /^([a-z0-9]+):\/\/(.*)$/.exec(url) ?? []
  const userinfo = username ? `${encodeURIComponent(username)}:${encodeURIComponent(password)}@` : ''
  return `${scheme ?? own}://${userinfo}${host}`
}
