import { createHash } from 'node:crypto'
import { messageOf } from '../../runtime/errors.ts'
import { writeCredentialFiles } from '../credential-files.ts'
import { GitError, runProgram } from '../git.ts'
import { armorOf, type Signed } from './signed-object.ts'

/** A public key that has passed every check. */
export interface SshKey {
  /** Its name in authorized_keys, e.g. `ssh-ed25519`. */
  type: string
  /** In the wire encoding of RFC 4253 §6.6. */
  blob: Buffer
}

/** What ssh-keygen needs to run; see `GitHome`. */
export interface SshHome {
  path: string
  run: string
}

const types: readonly string[] = [
  'ssh-ed25519',
  'ssh-rsa',
  'ecdsa-sha2-nistp256',
  'ecdsa-sha2-nistp384',
  'ecdsa-sha2-nistp521',
  'sk-ssh-ed25519@openssh.com',
  'sk-ecdsa-sha2-nistp256@openssh.com',
]
const minRsaBits = 2047
const maxLines = 10_000
const namespace = 'git'

/**
 * The keys of a list as in authorized_keys (sshd(8)): `<type> <base64> [comment]` a line. Throws an Error that names the line: a key that is left out in silence would be
 * missed when it is too late, and options are refused because what they allow is not what is asked here.
 */
export function readSshKeys(content: Buffer): SshKey[] {
  const lines = content.toString().split('\n')
  if (lines.length > maxLines) throw new Error(`it has more than ${maxLines} lines`)
  return lines.flatMap((line, at) => {
    if (/^\s*(?:#|$)/.test(line)) return []
    try {
      return [readSshKey(line.trim())]
    } catch (err) {
      throw new Error(`line ${at + 1}: ${messageOf(err)}`, { cause: err })
    }
  })
}

function readSshKey(line: string): SshKey {
  const [type = '', base64 = ''] = line.split(/[ \t]+/, 2)
  if (!types.includes(type)) throw new Error(`it must start with one of the key types ${types.join(', ')}`)
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(base64)) throw new Error(`the ${type} key is not in base64`)
  const blob = Buffer.from(base64, 'base64')
  const fields = new Fields(blob)
  if (fields.next().toString('latin1') !== type) throw new Error(`the key is not of the type ${type}`)
  if (type === 'ssh-rsa') checkRsa(fields)
  return { type, blob }
}

/** RFC 4253 §6.6: the exponent, then the modulus, whose first byte may be a zero. */
function checkRsa(fields: Fields): void {
  fields.next()
  const bits = BigInt(`0x0${fields.next().toString('hex')}`).toString(2).length
  if (bits < minRsaBits) throw new Error(`an RSA key of ${bits} bits is too weak, it takes 2048`)
}

/**
 * Verifies an SSH signature for the namespace `git` (OpenSSH's PROTOCOL.sshsig) with ssh-keygen; any of the keys will do. Gives the fingerprint of the one that made it, as
 * `SHA256:<base64>`. Throws an Error that says why not, or the signal's reason.
 */
export async function verifySsh(
  { payload, signature }: Signed,
  keys: readonly SshKey[],
  { path, run }: SshHome,
  signal: AbortSignal,
): Promise<string> {
  const signer = signerOf(armorOf(signature, 'SSH SIGNATURE'))
  const fingerprint = `SHA256:${createHash('sha256').update(signer).digest('base64').replace(/=+$/, '')}`
  const key = keys.find(({ blob }) => blob.equals(signer))
  if (!key) throw new Error(`no key of the secret has the fingerprint '${fingerprint}'`)
  const signers = `${namespace} namespaces="${namespace}" ${key.type} ${key.blob.toString('base64')}\n`
  const files = await writeCredentialFiles(run, { signers, signature })
  try {
    const { paths } = files
    const args = ['-Y', 'verify', '-n', namespace, '-I', namespace, '-f', paths.signers, '-s', paths.signature]
    await runProgram('ssh-keygen', args, { env: { PATH: path, LC_ALL: 'C' }, signal, input: payload })
  } catch (err) {
    signal.throwIfAborted()
    const refused = err instanceof GitError && err.exitCode !== null
    const why = refused ? 'the signature is not of this content' : messageOf(err)
    throw new Error(`key '${fingerprint}': ${why}`, { cause: err })
  } finally {
    await files.release()
  }
  return fingerprint
}

/** The public key that a signature says it was made with. */
function signerOf(base64: string): Buffer {
  const blob = Buffer.from(base64, 'base64')
  if (blob.toString('latin1', 0, 6) !== 'SSHSIG' || blob.length < 10)
    throw new Error('the signature is not well-formed')
  const version = blob.readUInt32BE(6)
  if (version !== 1) throw new Error(`the signature is of the unknown version ${version}`)
  const fields = new Fields(blob.subarray(10))
  const signer = fields.next()
  const purpose = fields.next().toString('latin1')
  if (purpose !== namespace) throw new Error("the signature was not made for git: its namespace is another than 'git'")
  return signer
}

/** Strings in the wire encoding of RFC 4251 §5. */
class Fields {
  #rest: Buffer
  constructor(bytes: Buffer) {
    this.#rest = bytes
  }

  next(): Buffer {
    const length = this.#rest.length < 4 ? Infinity : this.#rest.readUInt32BE()
    if (length > this.#rest.length - 4) throw new Error('it ends too early')
    const field = this.#rest.subarray(4, 4 + length)
    this.#rest = this.#rest.subarray(4 + length)
    return field
  }
}
