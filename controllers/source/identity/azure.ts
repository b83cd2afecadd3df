import type { AccessToken, TokenCredential } from '@azure/identity'
import type { Context } from '../../runtime/context.ts'
import type { Proxy } from '../transport/transport.ts'
import { readServiceAccount, serviceAccountToken, type ServiceAccount } from './service-account.ts'
import type { Token, TokenCache, TokenUser } from './token-cache.ts'

/** Who asks Microsoft Entra, and for what. */
export interface AzureRequest {
  /** e.g. `499b84ac-1321-427f-aa17-267ca6975798/.default` */
  scope: string
  /** Undefined: the controller's own identity. */
  serviceAccount: string | undefined
  user: TokenUser
  proxy?: Proxy | undefined
}

const clientIdAnnotation = 'azure.workload.identity/client-id'
const tenantIdAnnotation = 'azure.workload.identity/tenant-id'
const audience = 'api://AzureADTokenExchange'
const guid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
const requestMs = 10_000

/**
 * An access token of Entra: of the controller (environment, workload identity or managed identity, in this order), or of a service account that is
 * federated with an application. Throws an Error that says whom Entra, or the cluster, did not trust.
 */
export async function azureToken(
  { scope, serviceAccount, user, proxy }: AzureRequest,
  tokens: TokenCache,
  ctx: Pick<Context, 'client' | 'signal'>,
): Promise<string> {
  const account = serviceAccount ? await readServiceAccount(ctx, user.namespace, serviceAccount) : undefined
  const application = account && applicationOf(account)
  return tokens.get(['azure', scope, account, proxy], user, ctx.signal, async (signal) => {
    const credential = application
      ? await federated(application, () => serviceAccountToken({ ...ctx, signal }, account, audience), proxy)
      : await ownCredential(proxy)
    const abortSignal = AbortSignal.any([signal, AbortSignal.timeout(requestMs)])
    return tokenOf(await credential.getToken(scope, { abortSignal }))
  })
}

interface Application {
  clientId: string
  tenantId: string
}

function applicationOf({ namespace, name, annotations }: ServiceAccount): Application {
  const read = (annotation: string) => {
    const value = annotations[annotation] ?? ''
    if (!guid.test(value))
      throw new Error(`service account '${namespace}/${name}': annotation '${annotation}' is missing or not a GUID`)
    return value
  }
  return { clientId: read(clientIdAnnotation), tenantId: read(tenantIdAnnotation) }
}

async function federated(
  { clientId, tenantId }: Application,
  assertion: () => Promise<string>,
  proxy: Proxy | undefined,
): Promise<TokenCredential> {
  const { ClientAssertionCredential } = await import('@azure/identity')
  return new ClientAssertionCredential(tenantId, clientId, assertion, optionsFor(proxy))
}

async function ownCredential(proxy: Proxy | undefined): Promise<TokenCredential> {
  const azure = await import('@azure/identity')
  const options = optionsFor(proxy)
  const { AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_FEDERATED_TOKEN_FILE } = process.env
  const hasWorkload = AZURE_TENANT_ID && AZURE_CLIENT_ID && AZURE_FEDERATED_TOKEN_FILE
  return new azure.ChainedTokenCredential(
    new azure.EnvironmentCredential(options),
    ...(hasWorkload ? [new azure.WorkloadIdentityCredential(options)] : []),
    // On the machine itself: no proxy leads there.
    new azure.ManagedIdentityCredential({ retryOptions: { maxRetries: 1 } }),
  )
}

/** Only http proxies are known to the library; through another one the cloud is not reached, rather than around it. */
function optionsFor(proxy: Proxy | undefined) {
  const host = process.env['AZURE_AUTHORITY_HOST']
  // Authorities that Microsoft's public one does not list are taken at the word of whoever runs the controller.
  const isPrivate = Boolean(
    host && !/^https:\/\/login\.(?:microsoftonline\.(?:com|us)|chinacloudapi\.cn)\/?$/.test(host),
  )
  const options = { disableInstanceDiscovery: isPrivate, retryOptions: { maxRetries: 1 } }
  if (!proxy) return options
  const { protocol, hostname, port } = new URL(proxy.url)
  if (protocol === 'socks5:') throw new Error('a SOCKS5 proxy cannot be used with a cloud identity')
  const { username, password } = proxy
  return {
    ...options,
    proxyOptions: {
      host: `${protocol}//${hostname}`,
      port: Number(port || (protocol === 'https:' ? 443 : 80)),
      ...(username ? { username } : {}),
      ...(password ? { password } : {}),
    },
  }
}

function tokenOf(token: AccessToken | null): Token<string> {
  if (!token) throw new Error('Microsoft Entra issued no token')
  return { value: token.token, expiresAtMs: token.expiresOnTimestamp }
}
