import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import type { Context } from '../../runtime/context.ts'
import { proxyWithCredentials } from '../transport/proxy.ts'
import type { Proxy } from '../transport/transport.ts'
import { readServiceAccount, serviceAccountToken, type ServiceAccount } from './service-account.ts'
import type { TokenCache, TokenUser } from './token-cache.ts'

/** Who asks AWS, and where. */
export interface AwsRequest {
  region: string
  /** Undefined: the controller's own identity. */
  serviceAccount: string | undefined
  user: TokenUser
  proxy?: Proxy | undefined
}

/** Keys that requests to AWS are signed with. */
export interface AwsKeys {
  accessKeyId: string
  secretAccessKey: string
  sessionToken?: string | undefined
}

const roleAnnotation = 'eks.amazonaws.com/role-arn'
const roleArn = /^arn:aws[\w-]*:iam::[0-9]{1,30}:role\/.{1,200}$/
const audience = 'sts.amazonaws.com'
/** STS takes no longer name. */
const maxSessionNameLength = 64
const requestMs = 10_000

/**
 * Keys of AWS: the controller's own, from wherever the SDK finds them, or those of the role of a service account. Throws an Error that says whom AWS, or the
 * cluster, did not trust.
 */
export async function awsCredentials(
  { region, serviceAccount, user, proxy }: AwsRequest,
  tokens: TokenCache,
  ctx: Pick<Context, 'client' | 'signal'>,
): Promise<AwsKeys> {
  const account = serviceAccount ? await readServiceAccount(ctx, user.namespace, serviceAccount) : undefined
  const role = account && roleOf(account)
  return tokens.get(['aws', region, account, proxy], user, ctx.signal, async (signal) => {
    const { fromNodeProviderChain, fromWebToken } = await import('@aws-sdk/credential-providers')
    const clientConfig = { region, maxAttempts: 2, requestHandler: handlerFor(proxy) }
    const provider = role
      ? fromWebToken({
          roleArn: role,
          webIdentityToken: await serviceAccountToken({ ...ctx, signal }, account, audience),
          roleSessionName: `${account.name}.${account.namespace}.${region}.fluxcd.io`.slice(0, maxSessionNameLength),
          clientConfig,
        })
      : fromNodeProviderChain({ clientConfig })
    const { accessKeyId, secretAccessKey, sessionToken, expiration } = await provider()
    return { value: { accessKeyId, secretAccessKey, sessionToken }, expiresAtMs: expiration?.getTime() }
  })
}

function roleOf({ namespace, name, annotations }: ServiceAccount): string {
  const role = annotations[roleAnnotation] ?? ''
  if (!roleArn.test(role))
    throw new Error(`service account '${namespace}/${name}': annotation '${roleAnnotation}' is missing or not a role`)
  return role
}

/** The SDK's own requests, through the proxy that the object names. Throws an Error for one that they cannot go through. */
function handlerFor(proxy: Proxy | undefined) {
  const limits = { requestTimeout: requestMs, connectionTimeout: requestMs }
  if (!proxy) return limits
  if (proxy.url.startsWith('socks5:')) throw new Error('a SOCKS5 proxy cannot be used with a cloud identity')
  const url = proxyWithCredentials(proxy)
  const options = { proxyEnv: { HTTP_PROXY: url, HTTPS_PROXY: url } }
  return { ...limits, httpAgent: new HttpAgent(options), httpsAgent: new HttpsAgent(options) }
}
