import type { Context } from '../../runtime/context.ts'
import { messageOf } from '../../runtime/errors.ts'
import type { Kind, KubeObject } from '../../runtime/kind.ts'

/** A service account as far as its identity elsewhere depends on it. */
export interface ServiceAccount {
  namespace: string
  name: string
  /** Another one for an account of the same name that was made anew. */
  uid: string
  annotations: Record<string, string>
}

/** authentication.k8s.io/v1 */
interface TokenRequest extends KubeObject {
  spec: { audiences: string[]; expirationSeconds: number }
  status?: { token: string; expirationTimestamp: string }
}

const ServiceAccountKind: Kind = { group: '', version: 'v1', kind: 'ServiceAccount', plural: 'serviceaccounts' }
/** The shortest that the API server issues: it is exchanged at once. */
const lifetimeSeconds = 600

/** Throws an Error where it is not there or must not be read. */
export async function readServiceAccount(
  ctx: Pick<Context, 'client' | 'signal'>,
  namespace: string,
  name: string,
): Promise<ServiceAccount> {
  const failed = (why: string, cause?: unknown) =>
    new Error(`failed to get service account '${namespace}/${name}': ${why}`, { cause })
  const found = await ctx.client.get(ServiceAccountKind, { namespace, name }, ctx.signal).catch((err: unknown) => {
    throw failed(messageOf(err), err)
  })
  if (!found) throw failed(`serviceaccounts "${name}" not found`)
  const { uid = '', annotations = {} } = found.metadata
  return { namespace, name, uid, annotations }
}

/** A token by which the service account is known to `audience` (TokenRequest API). Throws an Error where the API server refuses. */
export async function serviceAccountToken(
  ctx: Pick<Context, 'client' | 'signal'>,
  { namespace, name }: ServiceAccount,
  audience: string,
): Promise<string> {
  // What is posted there is of another kind than what it is posted to.
  const plural = `serviceaccounts/${encodeURIComponent(name)}/token`
  const kind: Kind<TokenRequest> = { group: '', version: 'v1', kind: 'TokenRequest', plural }
  const request: TokenRequest = {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'TokenRequest',
    metadata: { name, namespace },
    spec: { audiences: [audience], expirationSeconds: lifetimeSeconds },
  }
  const answer = await ctx.client.create(kind, request, ctx.signal).catch((err: unknown) => {
    throw new Error(`failed to create token for service account '${namespace}/${name}': ${messageOf(err)}`, {
      cause: err,
    })
  })
  if (!answer.status?.token) throw new Error(`no token for service account '${namespace}/${name}' was issued`)
  return answer.status.token
}
