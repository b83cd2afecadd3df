import type { KeyID, PartialConfig, PublicKey, Signature } from 'openpgp'
import { messageOf } from '../../runtime/errors.ts'
import { sanitize } from '../failure.ts'
import { armorOf, type Signed } from './signed-object.ts'

const label = 'PGP SIGNATURE'
const keyBlock = /-----BEGIN PGP PUBLIC KEY BLOCK-----[^]*?-----END PGP PUBLIC KEY BLOCK-----/g
/** In one armored text; git makes one. */
const maxSignatures = 16

const config: PartialConfig = {
  // A key whose expiry was put off says so in a self-signature that is newer than what it signed before.
  allowInsecureVerificationWithReformattedKeys: true,
}

/** The keys of a keyring (RFC 9580), armored (several blocks may follow each other) or binary. Throws an Error where it cannot be read. */
export async function readKeyring(content: Buffer): Promise<PublicKey[]> {
  const { readKeys } = await import('openpgp')
  const keys = content.includes('-----BEGIN PGP ')
    ? await Promise.all(blocksOf(content.toString('latin1')).map((armoredKeys) => readKeys({ armoredKeys })))
    : [await readKeys({ binaryKeys: content })]
  if (keys.flat().some((key) => key.isPrivate())) throw new Error('it holds a private key, give the public key alone')
  return keys.flat()
}

function blocksOf(text: string): string[] {
  if (text.includes('-----BEGIN PGP PRIVATE KEY')) throw new Error('it holds a private key, give the public key alone')
  const blocks = text.match(keyBlock)
  if (!blocks) throw new Error('it holds no complete PGP public key block')
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
  const { enums, readSignature } = await import('openpgp')
  armorOf(armored, label)
  const parsed = await readSignature({ armoredSignature: armored })
  if (parsed.packets.length > maxSignatures) throw new Error(`there are more than ${maxSignatures} signatures in one`)
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
