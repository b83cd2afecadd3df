import type { Client } from './client.ts'
import { messageOf, ReconcileError, StalledError } from './errors.ts'
import { isObjectName, type Kind, type KubeObject, type ObjectKey } from './kind.ts'

/** `v1` Secret; the values of `data` are in base64. */
export interface Secret extends KubeObject {
  data?: Record<string, string>
}

export const SecretKind: Kind<Secret> = { group: '', version: 'v1', kind: 'Secret', plural: 'secrets' }

/** The decoded content of a Secret, by key. */
export type SecretData = Record<string, Buffer>

/** A Secret, or undefined where there is none. Throws ReconcileError `AuthenticationFailed`. */
export async function getSecret(client: Client, key: ObjectKey, signal: AbortSignal): Promise<Secret | undefined> {
  if (!isObjectName(key.name)) throw new StalledError('AuthenticationFailed', failure(key, 'not a name of an object'))
  return client.get(SecretKind, key, signal).catch((err: unknown) => {
    throw new ReconcileError('AuthenticationFailed', failure(key, messageOf(err)), { cause: err })
  })
}

/** The data of a Secret. Throws ReconcileError `AuthenticationFailed` where there is none; the message holds the name and never the content. */
export function decodeSecret(key: ObjectKey, secret: Secret | undefined): SecretData {
  if (!secret) throw new ReconcileError('AuthenticationFailed', failure(key, `secrets "${key.name}" not found`))
  const data = Object.entries(secret.data ?? {})
  return Object.fromEntries(data.map(([name, value]) => [name, Buffer.from(value, 'base64')]))
}

function failure({ namespace, name }: ObjectKey, why: string): string {
  return `failed to get secret '${namespace}/${name}': ${why}`
}
