import type { Context } from './context.ts'
import { messageOf, ReconcileError } from './errors.ts'
import type { Kind, KubeObject } from './kind.ts'

interface Secret extends KubeObject {
  data?: Record<string, string>
}

const SecretKind: Kind<Secret> = { group: '', version: 'v1', kind: 'Secret', plural: 'secrets' }

/** The decoded content of a Secret, by key. */
export type SecretData = Record<string, Buffer>

/** The decoded data of a Secret. Throws ReconcileError `AuthenticationFailed`; the message holds the name and never the content. */
export async function readSecret(
  ctx: Pick<Context, 'client' | 'signal'>,
  namespace: string,
  name: string,
): Promise<SecretData> {
  const failed = (why: string, cause?: unknown) =>
    new ReconcileError('AuthenticationFailed', `failed to get secret '${namespace}/${name}': ${why}`, { cause })
  const secret = await ctx.client.get(SecretKind, { namespace, name }, ctx.signal).catch((err: unknown) => {
    throw failed(messageOf(err), err)
  })
  if (!secret) throw failed(`secrets "${name}" not found`)
  return Object.fromEntries(
    Object.entries(secret.data ?? {}).map(([key, value]) => [key, Buffer.from(value, 'base64')]),
  )
}
