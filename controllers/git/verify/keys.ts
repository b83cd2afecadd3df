import { createHash } from 'node:crypto'
import type { PublicKey } from 'openpgp'
import { makePacer } from '../../artifact/archive/pace.ts'
import { messageOf, ReconcileError } from '../../runtime/errors.ts'
import type { SecretData } from '../../runtime/secret.ts'
import { readKeyring } from './pgp.ts'
import { readSshKeys, type SshKey } from './ssh.ts'

/** Everyone whose signature is trusted. */
export interface TrustedKeys {
  pgp: PublicKey[]
  ssh: SshKey[]
}

/** All that is in the Secret of `spec.verify` could not be had or read: nothing is verified then. */
export function keysFailure(detail: string, cause?: unknown): ReconcileError {
  const message = `public keys secret error: ${detail}`
  return new ReconcileError('VerificationError', message, { cause, condition: 'SourceVerified' })
}

/**
 * Entries `*.asc` are PGP keyrings, `*.sshpub` lists of SSH keys; any other may be a PGP keyring, and is passed over where it is none. Throws a
 * ReconcileError `VerificationError` that names the entry which cannot be read.
 */
export async function readTrustedKeys(data: SecretData): Promise<TrustedKeys> {
  const keys: TrustedKeys = { pgp: [], ssh: [] }
  const pace = makePacer()
  for (const name of Object.keys(data).toSorted()) {
    await pace()
    const content = data[name]!
    try {
      if (name.endsWith('.sshpub')) keys.ssh.push(...readSshKeys(content))
      else keys.pgp.push(...(await readKeyring(content)))
    } catch (err) {
      if (/\.(?:asc|sshpub)$/.test(name)) throw keysFailure(`failed to read '${name}': ${messageOf(err)}`, err)
    }
  }
  return keys
}

/** Equal for equal entries. */
export function digestOf(data: SecretData): string {
  const hash = createHash('sha256')
  for (const name of Object.keys(data).toSorted()) hash.update(`${name} ${data[name]!.length}\n`).update(data[name]!)
  return hash.digest('hex')
}
