import type { KeyID, PartialConfig, PublicKey, Signature } from 'openpgp'
import { makePacer } from '../../artifact/archive/pace.ts'
import { messageOf } from '../../runtime/errors.ts'
import { sanitize } from '../failure.ts'
import { checkPackets } from './packets.ts'
import { armorOf, type Signed } from './signed-object.ts'

const label = 'PGP SIGNATURE'
const keyBlock = { begin: '-----BEGIN PGP PUBLIC KEY BLOCK-----', end: '-----END PGP PUBLIC KEY BLOCK-----' }
/** In one entry of a Secret. */
const maxBlocks = 1000
/** In one keyring: openpgp reads an empty packet in some 10 µs, and all of them in one go. */
const maxPackets = 10_000
/** In one armored text; git makes one. */
const maxSignatures = 16

const config: PartialConfig = {
  // A key whose expiry was put off says so in a self-signature that is newer than what it signed before.
  allowInsecureVerificationWithReformattedKeys: true,
}

/** The keys of a keyring (RFC 9580), armored (several blocks may follow each other) or binary. Throws an Error where it cannot be read. */
export async function readKeyring(content: Buffer): Promise<PublicKey[]> {
  const { readKeys, unarmor } = await import('openpgp')
  const pace = makePacer()
  const keys: PublicKey[] = []
  const isArmored = content.includes('-----BEGIN PGP ')
  for (const part of isArmored ? blocksOf(content.toString('latin1')) : [content]) {
    await pace()
    const binaryKeys = Buffer.isBuffer(part) ? part : Buffer.from((await unarmor(part)).data as Uint8Array)
    checkPackets(binaryKeys, maxPackets)
    keys.push(...(await readKeys({ binaryKeys })))
  }
  if (keys.some((key) => key.isPrivate())) throw new Error('it holds a private key, give the public key alone')
  return keys
}

function blocksOf(text: string): string[] {
  if (text.includes('-----BEGIN PGP PRIVATE KEY')) throw new Error('it holds a private key, give the public key alone')
  const { begin, end } = keyBlock
  const blocks: string[] = []
  // Not by a pattern: it would look for the end of each block that has none, again and again.
  for (let at = 0; ;) {
    const from = text.indexOf(begin, at)
    const to = from < 0 ? -1 : text.indexOf(end, from)
    if (to < 0) break
    at = to + end.length
    blocks.push(text.slice(from, at))
    if (blocks.length > maxBlocks) throw new Error(`it holds more than ${maxBlocks} PGP public key blocks`)
  }
  if (blocks.length === 0) throw new Error('it holds no complete PGP public key block')
  return blocks
}

/**
 * Verifies an OpenPGP signature; any of the keys will do. Gives the id of the primary key, 16 hexadecimal digits in capitals. Throws an Error that says
 * why not. The key must be neither expired nor revoked now, whenever the signature says that it was made: who finds an old key can write any date.
 */
export async function verifyPgp(signed: Signed, keys: readonly PublicKey[]): Promise<string> {
  const parsed = await parseSignature(signed.signature)
  const issuers = parsed.getSigningKeyIDs().filter((id) => !/^0*$/.test(id.toHex())) // all zeros would match any key
  if (issuers.length === 0) throw new Error('the signature does not say which key made it')
  const failures = [`no key of the secret has the id '${shownId(issuers[0]!)}'`]
  for (const key of keys.filter((candidate) => issuers.some((id) => candidate.getKeys(id).length > 0))) {
    try {
      return await verifyWith(key, signed.payload, parsed)
    } catch (err) {
      failures.push(`key '${shownId(key.getKeyID())}': ${sanitize(messageOf(err))}`)
    }
  }
  throw new Error(failures.at(-1))
}

/** Only signatures of bytes: one of text is the same for other line ends. */
async function parseSignature(armored: string): Promise<Signature> {
  const { enums, readSignature, unarmor } = await import('openpgp')
  armorOf(armored, label)
  const binarySignature = Buffer.from((await unarmor(armored)).data as Uint8Array)
  checkPackets(binarySignature, maxSignatures)
  const parsed = await readSignature({ binarySignature })
  if (parsed.packets.some(({ signatureType }) => signatureType !== enums.signature.binary)) {
    throw new Error('the signature is not of a kind that git makes')
  }
  return parsed
}

/** Any one of the signatures will do; throws the last one's Error. */
async function verifyWith(key: PublicKey, payload: Buffer, signature: Signature): Promise<string> {
  const { config: defaults, createMessage, verify } = await import('openpgp')
  const date = new Date()
  const message = await createMessage({ binary: payload })
  const result = await verify({ message, signature, verificationKeys: key, date, format: 'binary', config })
  let failure: unknown
  for (const { keyID, verified } of result.signatures) {
    try {
      await verified
      await key.getSigningKey(keyID, date, undefined, { ...defaults, ...config })
      return shownId(key.getKeyID())
    } catch (err) {
      if (key.getKeys(keyID).length > 0) failure = err
    }
  }
  throw failure
}

function shownId(id: KeyID): string {
  return id.toHex().toUpperCase()
}
