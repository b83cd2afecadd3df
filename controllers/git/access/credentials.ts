import type { SecretData } from '../../runtime/secret.ts'

/** Who asks, whatever the transport. */
export interface Credentials {
  /** What is the same as long as the one who asks is: of this the key is made. */
  identity: string
  /** The `Authorization` header. */
  authorization: string
  secrets: readonly string[]
}

/** A name and a password as HTTP takes them; either may be empty. Throws an Error where the name cannot be one. */
export function basicCredentials(username: string, password: string): Credentials {
  if (username.includes(':')) throw new Error("malformed basic auth - 'username' contains ':'")
  const encoded = Buffer.from(`${username}:${password}`).toString('base64')
  // `https://TOKEN@host` and `https://TOKEN:x-oauth-basic@host`: it is the name that must not be known.
  const nameIsSecret = password === '' || password.toLowerCase() === 'x-oauth-basic'
  return {
    identity: `basic\0${encoded}`,
    authorization: `Basic ${encoded}`,
    secrets: redacted(encoded, password, nameIsSecret ? username : ''),
  }
}

/** A token as HTTP takes it (RFC 6750). Throws an Error where it cannot be one. */
export function bearerCredentials(token: string, identity = `bearer\0${token}`): Credentials {
  if (!/^[\x21-\x7e]+$/.test(token)) throw new Error("'bearerToken' contains characters that no token has")
  return { identity, authorization: `Bearer ${token}`, secrets: redacted(token) }
}

/** Texts as they are and as a URL has them. A short one would blot out innocent words, and is no secret that could be told from them. */
export function redacted(...texts: string[]): string[] {
  return [...new Set(texts.flatMap((text) => [text, encodeURIComponent(text)]))].filter((text) => text.length >= 4)
}

/** What a Secret says of who asks over HTTP; undefined where it says nothing. Throws an Error that names the key and what is wrong with it. */
export function credentialsFromSecret(data: SecretData): Credentials | undefined {
  const { username, password, bearerToken } = data
  const isBasic = username?.length || password?.length
  if (isBasic && bearerToken?.length)
    throw new Error("basic auth and bearer token cannot be set at the same time: 'username' and 'bearerToken'")
  if (bearerToken?.length) return bearerCredentials(bearerToken.toString().trim())
  if (!isBasic) return undefined
  if (!username?.length) throw malformed('password', 'username')
  if (!password?.length) throw malformed('username', 'password')
  return basicCredentials(username.toString(), password.toString())
}

function malformed(has: string, missing: string): Error {
  return new Error(`malformed basic auth - has '${has}' but missing '${missing}'`)
}
