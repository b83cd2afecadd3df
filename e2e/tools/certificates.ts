import { createHash, createPublicKey, generateKeyPairSync, randomBytes, sign, type KeyObject } from 'node:crypto'
import { isIP } from 'node:net'
import * as der from './der.ts'

/** A certificate and its private key (PKCS #8), both PEM. */
export interface Credential {
  certificate: string
  key: string
}

/** Who a leaf certificate is for; Kubernetes reads a user from the common name and groups from the organizations. */
export interface Subject {
  commonName: string
  organizations?: readonly string[] | undefined
  /** DNS names and IPv4 addresses that a server answers to. */
  hosts?: readonly string[] | undefined
}

/** A certificate authority that lives in memory: its certificate, and what it issues. */
export interface Authority {
  certificate: string
  /** A certificate for a server (when it has hosts) or a client, valid from an hour ago for a year. */
  issue(subject: Subject): Credential
}

const hourMs = 3_600_000
const lifetimeMs = 365 * 24 * hourMs
const ecdsaWithSha256 = der.sequence(der.objectIdentifier('1.2.840.10045.4.3.2'))

interface Signer {
  name: Buffer
  privateKey: KeyObject
  keyId: Buffer
}

/** Makes a self-signed authority with an ECDSA key on P-256 (X.509 v3, RFC 5280). */
export function makeAuthority(commonName: string): Authority {
  const { privateKey } = makeKey()
  const signer: Signer = { name: nameOf({ commonName }), privateKey, keyId: keyIdOf(privateKey) }
  const usage = [
    extension('2.5.29.19', der.sequence(der.boolean(true)), true),
    extension('2.5.29.15', der.bitString(Buffer.of(0x06), 1), true), // keyCertSign, cRLSign
  ]
  return {
    certificate: makeCertificate(signer, signer.name, privateKey, usage),
    issue(subject) {
      const leaf = makeKey()
      const certificate = makeCertificate(signer, nameOf(subject), leaf.privateKey, leafExtensions(subject))
      return { certificate, key: leaf.pem }
    },
  }
}

/** A fresh ECDSA P-256 key pair, PEM: PKCS #8 and SubjectPublicKeyInfo. */
export function makeKeyPair(): { publicKey: string; privateKey: string } {
  const { privateKey, pem } = makeKey()
  return { privateKey: pem, publicKey: createPublicKey(privateKey).export({ type: 'spki', format: 'pem' }) }
}

function makeKey(): { privateKey: KeyObject; pem: string } {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return { privateKey, pem: privateKey.export({ type: 'pkcs8', format: 'pem' }) }
}

function makeCertificate(signer: Signer, name: Buffer, key: KeyObject, extensions: Buffer[]): string {
  const now = Date.now()
  const serial = randomBytes(16)
  serial[0] = 0x40 | (serial[0]! & 0x3f) // positive and of full length
  const identifiers = [
    extension('2.5.29.14', der.octetString(keyIdOf(key))),
    extension('2.5.29.35', der.sequence(der.implicit(0, signer.keyId))),
  ]
  const body = der.sequence(
    der.explicit(0, der.integer(Buffer.of(2))), // version 3
    der.integer(serial),
    ecdsaWithSha256,
    signer.name,
    der.sequence(der.utcTime(new Date(now - hourMs)), der.utcTime(new Date(now + lifetimeMs))),
    name,
    publicKeyOf(key),
    der.explicit(3, der.sequence(...identifiers, ...extensions)),
  )
  const signature = sign('sha256', body, signer.privateKey)
  return pemOf(der.sequence(body, ecdsaWithSha256, der.bitString(signature)))
}

function leafExtensions({ hosts = [] }: Subject): Buffer[] {
  const purpose = hosts.length > 0 ? '1.3.6.1.5.5.7.3.1' : '1.3.6.1.5.5.7.3.2' // serverAuth, clientAuth
  const names = hosts.map((host) =>
    isIP(host) === 4
      ? der.implicit(7, Buffer.from(host.split('.').map(Number)))
      : der.implicit(2, Buffer.from(host, 'ascii')),
  )
  return [
    extension('2.5.29.15', der.bitString(Buffer.of(0x80), 7), true), // digitalSignature
    extension('2.5.29.37', der.sequence(der.objectIdentifier(purpose))),
    ...(hosts.length > 0 ? [extension('2.5.29.17', der.sequence(...names))] : []),
  ]
}

function extension(id: string, value: Buffer, critical = false): Buffer {
  return der.sequence(der.objectIdentifier(id), ...(critical ? [der.boolean(true)] : []), der.octetString(value))
}

function attribute(id: string, text: string): Buffer {
  return der.set(der.sequence(der.objectIdentifier(id), der.utf8String(text)))
}

function nameOf({ commonName, organizations = [] }: Subject): Buffer {
  return der.sequence(
    ...organizations.map((organization) => attribute('2.5.4.10', organization)),
    attribute('2.5.4.3', commonName),
  )
}

function publicKeyOf(key: KeyObject): Buffer {
  return createPublicKey(key).export({ type: 'spki', format: 'der' })
}

function keyIdOf(key: KeyObject): Buffer {
  return createHash('sha1').update(publicKeyOf(key)).digest()
}

function pemOf(bytes: Buffer): string {
  const lines = bytes.toString('base64').match(/.{1,64}/g) ?? []
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n')
}
