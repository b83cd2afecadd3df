import { createHash } from 'node:crypto'
import { messageOf, ReconcileError, StalledError } from '../../runtime/errors.ts'
import type { SecretData } from '../../runtime/secret.ts'
import { controllerIdentity, type Identity } from '../../source/identity/identity.ts'
import type { SourceContext } from '../../source/source.ts'
import { transportKey } from '../../source/transport/dispatcher.ts'
import { proxyFromSecret } from '../../source/transport/proxy.ts'
import { hasLegacyTls, tlsFromSecret } from '../../source/transport/tls.ts'
import type { Proxy, TlsOptions, Transport } from '../../source/transport/transport.ts'
import { sshAccess } from '../ssh/identity.ts'
import type { RepositoryUrl } from '../url.ts'
import { basicCredentials, credentialsFromSecret, redacted, type Credentials } from './credentials.ts'
import { checkProvider, providerCredentials, type Provider } from './providers.ts'

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

export type { Proxy, TlsOptions }

/** What ssh needs; its user name is in the URL. */
export interface SshIdentity {
  /** A private key as ssh-keygen writes it. */
  identity: string
  passphrase?: string
  /** sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"; only hosts in it are trusted. */
  knownHosts: string
}

export const anonymous: Access = { key: '', secrets: [] }

/** What of an object says how its repository is reached. */
export interface AccessSpec {
  metadata: { name?: string; namespace?: string }
  spec: {
    secretRef?: { name: string } | undefined
    proxySecretRef?: { name: string } | undefined
    provider?: Provider | undefined
    serviceAccountName?: string | undefined
  }
}

export type AccessContext = Pick<SourceContext, 'secrets' | 'client' | 'signal' | 'log'>

/** A Secret that was read; nothing where none is named. */
export interface ReadSecret {
  data: SecretData
  /** `namespace/name`, empty where none is named. */
  shown: string
}

/**
 * How `url` is reached: with what `spec.provider` issues, else the credentials of `spec.secretRef`, else those in the URL, else none; through the proxy of
 * `spec.proxySecretRef`. Throws a ReconcileError `AuthenticationFailed` or `InvalidProviderConfiguration`, or a StalledError.
 */
export async function accessFor(
  obj: AccessSpec,
  url: RepositoryUrl,
  ctx: AccessContext,
  identity: Identity = controllerIdentity,
): Promise<Access> {
  const { secretRef, proxySecretRef } = obj.spec
  const proxy = await configured('proxy', async () => {
    if (!proxySecretRef) return undefined
    const { data, shown } = await readSecret(obj, proxySecretRef.name, ctx)
    return proxyFromSecret(data, shown)
  })
  const secret = secretRef ? await readSecret(obj, secretRef.name, ctx) : { data: {}, shown: '' }
  checkProvider(obj, url, secret)
  if (url.href.startsWith('ssh:')) return throughProxy(sshAccess(secret.data, secret.shown), proxy)
  return await configured('authentication', async () => {
    if (hasLegacyTls(secret.data)) ctx.log.info({ secret: secret.shown }, 'certFile, keyFile and caFile are old names')
    const transport: Transport = { tls: tlsFromSecret(secret.data, secret.shown), proxy }
    const own = credentialsFromSecret(secret.data)
    const issued = await providerCredentials({ obj, url, secret, transport, identity, ctx })
    if (own && issued) throw new Error(`secret '${secret.shown}' has credentials beside those of spec.provider`)
    return makeAccess(issued ?? own ?? credentialsIn(url), transport)
  })
}

async function readSecret(obj: AccessSpec, name: string, ctx: AccessContext): Promise<ReadSecret> {
  return { data: await ctx.secrets.read(name), shown: `${obj.metadata.namespace ?? ''}/${name}` }
}

function credentialsIn({ userinfo }: RepositoryUrl): Credentials | undefined {
  return userinfo && basicCredentials(userinfo.username, userinfo.password)
}

/** Puts together who asks and over what. */
export function makeAccess(credentials: Credentials | undefined, transport: Transport): Access {
  const { tls, proxy } = transport
  if (!credentials && !tls && !proxy) return anonymous
  const key = createHash('sha256').update(credentials?.identity ?? '')
  const over = transportKey(transport)
  if (over) key.update(`\0over\0${over}`)
  return {
    key: key.digest('hex'),
    secrets: [...(credentials?.secrets ?? []), ...secretsOf(proxy)],
    ...(credentials ? { authorization: credentials.authorization } : {}),
    ...(tls ? { tls } : {}),
    ...(proxy ? { proxy } : {}),
  }
}

function throughProxy(access: Access, proxy: Proxy | undefined): Access {
  if (!proxy) return access
  const key = createHash('sha256').update(`${access.key}\0over\0${transportKey({ proxy })}`)
  return { ...access, key: key.digest('hex'), secrets: [...access.secrets, ...secretsOf(proxy)], proxy }
}

function secretsOf(proxy: Proxy | undefined): string[] {
  const { username = '', password = '' } = proxy ?? {}
  return password ? redacted(password, Buffer.from(`${username}:${password}`).toString('base64')) : []
}

/** What a Secret alone gives, undefined where it has nothing for HTTP; `shown` is `namespace/name`. Throws a ReconcileError `AuthenticationFailed`. */
export function accessFromSecret(data: SecretData, shown: string): Access | undefined {
  try {
    const access = makeAccess(credentialsFromSecret(data), { tls: tlsFromSecret(data, shown) })
    return access === anonymous ? undefined : access
  } catch (err) {
    throw misconfigured('authentication', err)
  }
}

/** A name and a password alone. Throws an Error where the name cannot be one. */
export function basicAccess(username: string, password: string): Access {
  return makeAccess(basicCredentials(username, password), {})
}

/** What `work` gives; its Errors become those that users look for. */
async function configured<R>(what: 'proxy' | 'authentication', work: () => Promise<R>): Promise<R> {
  try {
    return await work()
  } catch (err) {
    throw misconfigured(what, err)
  }
}

function misconfigured(what: 'proxy' | 'authentication', err: unknown): ReconcileError {
  if (err instanceof StalledError) return err
  return new ReconcileError('AuthenticationFailed', `failed to configure ${what} options: ${messageOf(err)}`, {
    cause: err,
    retryAfterMs: err instanceof ReconcileError ? err.retryAfterMs : undefined,
  })
}
