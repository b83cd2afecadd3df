import { createHash } from 'node:crypto'
import type { SourceContext } from '../../source/source.ts'
import { ReconcileError } from '../../runtime/errors.ts'
import type { SecretData } from '../../runtime/secret.ts'
import type { RepositoryUrl } from '../url.ts'

/**
 * How a repository may be reached. Requests of ours and native git both take all they need from here, so that a further way
 * of authentication is one more branch in this folder.
 */
export interface Access {
  /**
   * Tells apart who asks: equal for equal credentials, '' for nobody in particular. A token that is renewed leaves it as it is. Never
   * reversible, safe in file names.
   */
  key: string
  /** Texts that must not appear in any message. */
  secrets: readonly string[]
  /** The `Authorization` header, for the repository's own host alone. */
  authorization?: string
  tls?: TlsOptions
  proxy?: Proxy
  ssh?: SshIdentity
}

/** Texts in PEM. */
export interface TlsOptions {
  /** Trusted beside the system's own authorities. */
  ca?: string
  cert?: string
  key?: string
}

/** What stands between us and every host of the repository. */
export interface Proxy {
  /** `http:`, `https:` or `socks5:`, without credentials. */
  url: string
  username?: string
  password?: string
}

/** What ssh needs; its user name is in the URL. */
export interface SshIdentity {
  /** A private key as ssh-keygen writes it. */
  identity: string
  passphrase?: string
  /** sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"; only hosts in it are trusted. */
  knownHosts: string
}

export const anonymous: Access = { key: '', secrets: [] }

const unsupportedKeys = ['bearerToken', 'ca.crt', 'caFile', 'tls.crt', 'tls.key', 'certFile', 'keyFile', 'githubAppID']

/** The credentials of `spec.secretRef`, else those in the URL, else none. Throws a ReconcileError `AuthenticationFailed`. */
export async function accessFor(
  obj: { metadata: { namespace?: string }; spec: { secretRef?: { name: string } | undefined } },
  url: RepositoryUrl,
  ctx: Pick<SourceContext, 'secrets'>,
): Promise<Access> {
  const name = obj.spec.secretRef?.name
  if (name) {
    const namespace = obj.metadata.namespace ?? ''
    const access = accessFromSecret(await ctx.secrets.read(name), `${namespace}/${name}`)
    if (access) return access
  }
  return url.userinfo ? basicAccess(url.userinfo.username, url.userinfo.password) : anonymous
}

/** Undefined where the Secret holds nothing that this transport uses. `shown` is `namespace/name`. */
export function accessFromSecret(data: SecretData, shown: string): Access | undefined {
  const unsupported = unsupportedKeys.find((key) => data[key])
  if (unsupported) throw authenticationFailed(`secret '${shown}' contains '${unsupported}', which is not supported yet`)
  const { username, password } = data
  if (!username?.length && !password?.length) return undefined
  if (!username?.length) throw malformed('password', 'username')
  if (!password?.length) throw malformed('username', 'password')
  return basicAccess(username.toString(), password.toString())
}

/** A name and a password as HTTP takes them; either may be empty. Throws a ReconcileError `AuthenticationFailed`. */
export function basicAccess(username: string, password: string): Access {
  if (username.includes(':')) throw authenticationFailed("malformed basic auth - 'username' contains ':'")
  const encoded = Buffer.from(`${username}:${password}`).toString('base64')
  // `https://TOKEN@host`: without a password it is the name that must not be known.
  const secret = password || username
  return {
    key: createHash('sha256').update(`basic\0${encoded}`).digest('hex'),
    authorization: `Basic ${encoded}`,
    // A short text would blot out innocent words of a message, and it is no secret that could be told from them.
    secrets: [encoded, secret, encodeURIComponent(secret)].filter((s) => s.length >= 4),
  }
}

function malformed(has: string, missing: string): ReconcileError {
  return authenticationFailed(`malformed basic auth - has '${has}' but missing '${missing}'`)
}

function authenticationFailed(detail: string): ReconcileError {
  return new ReconcileError('AuthenticationFailed', `failed to configure authentication options: ${detail}`)
}
