import { createHash, createPrivateKey } from 'node:crypto'
import { ReconcileError } from '../../runtime/errors.ts'
import type { SecretData } from '../../runtime/secret.ts'
import type { Access, SshIdentity } from '../access/access.ts'
import { checkKnownHostsSize } from './known-hosts.ts'

const maxIdentityBytes = 64 * 1024
const maxPassphraseBytes = 1000 // what ssh reads of one

/**
 * What a Secret gives for ssh: `identity` and `known_hosts`, and `password` where the key is encrypted. `shownSecret` is `namespace/name`. Throws a
 * ReconcileError `AuthenticationFailed`; whether the passphrase is right and the host known turns out when they are used.
 */
export function sshAccess(data: SecretData, shownSecret: string): Access & { ssh: SshIdentity } {
  const identity = normalized(data['identity'], 'identity')
  const knownHosts = normalized(data['known_hosts'], 'known_hosts')
  const passphrase = passphraseOf(data['password'])
  const encrypted = isEncrypted(identity, shownSecret)
  if (encrypted && passphrase === undefined) {
    const missing = `no 'password' field was provided in the secret '${shownSecret}'`
    throw failed(`SSH identity key is encrypted but ${missing}`)
  }
  try {
    checkKnownHostsSize(knownHosts)
  } catch (err) {
    throw failed(`secret '${shownSecret}': ${(err as Error).message}`, err)
  }
  const ssh = { identity, knownHosts, ...(encrypted && passphrase !== undefined && { passphrase }) }
  const key = createHash('sha256').update(JSON.stringify(['ssh', identity, ssh.passphrase ?? '', knownHosts]))
  return { key: key.digest('hex'), secrets: (passphrase ?? '').length >= 4 ? [passphrase!] : [], ssh }
}

/** What ssh insists on: line feeds alone, and one at the end. */
function normalized(value: Buffer | undefined, name: string): string {
  const text = (value?.toString() ?? '').replaceAll('\r\n', '\n').trim()
  if (text === '') throw failed(`invalid 'ssh' auth option: '${name}' is required`)
  if (text.includes('\0')) throw failed(`'${name}' is not text`)
  return `${text}\n`
}

function passphraseOf(value: Buffer | undefined): string | undefined {
  const text = value?.toString().replace(/\r?\n$/, '')
  if (!text) return undefined
  if (/[\0\r\n]/.test(text)) throw failed("'password' is not one line of text")
  if (Buffer.byteLength(text) > maxPassphraseBytes)
    throw failed(`'password' is longer than ${maxPassphraseBytes} bytes`)
  return text
}

function isEncrypted(identity: string, shownSecret: string): boolean {
  const malformed = (why: string, cause?: unknown) => failed(`'identity' in secret '${shownSecret}' ${why}`, cause)
  if (identity.length > maxIdentityBytes) throw malformed(`is longer than ${maxIdentityBytes} bytes`)
  if (/^(?:ssh-|ecdsa-|sk-)/.test(identity)) throw malformed('is a public key, the private one is needed')
  const [, label, body = ''] =
    /^-----BEGIN ([A-Z ]{0,20}PRIVATE KEY)-----\n([^]*)\n-----END \1-----\n$/.exec(identity) ?? []
  if (label === undefined) throw malformed('is no private key in the format of OpenSSH or PEM')
  if (label === 'OPENSSH PRIVATE KEY') {
    const cipher = cipherOf(Buffer.from(body, 'base64'))
    if (cipher === undefined) throw malformed('is no well-formed OpenSSH key')
    return cipher !== 'none'
  }
  if (label === 'ENCRYPTED PRIVATE KEY' || /^Proc-Type: ?4,ENCRYPTED$/m.test(body)) return true
  try {
    createPrivateKey(identity)
  } catch (err) {
    throw malformed('is no well-formed PEM key', err)
  }
  return false
}

/** OpenSSH's PROTOCOL.key: a magic word, then the cipher's name as a string; `none` where the key is not encrypted. */
function cipherOf(blob: Buffer): string | undefined {
  const magic = 'openssh-key-v1\0'
  if (blob.toString('latin1', 0, magic.length) !== magic || blob.length < magic.length + 4) return undefined
  const start = magic.length + 4
  const length = blob.readUInt32BE(magic.length)
  if (length === 0 || length > blob.length - start) return undefined
  return blob.toString('latin1', start, start + length)
}

function failed(detail: string, cause?: unknown): ReconcileError {
  return new ReconcileError('AuthenticationFailed', `failed to configure authentication options: ${detail}`, { cause })
}
