import { createHash, createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { messageOf } from '../../runtime/errors.ts'
import type { SecretData } from '../../runtime/secret.ts'
import type { TlsOptions } from './transport.ts'

const standard = { ca: 'ca.crt', cert: 'tls.crt', key: 'tls.key' }
const legacy = { ca: 'caFile', cert: 'certFile', key: 'keyFile' }

const maxCertificates = 1_000
const maxRemembered = 1_000

/** Hashes of what has passed: every pass reads its Secret anew, and a bundle takes some 10 ms to check. */
const checked: Set<string> = new Set()

/**
 * The TLS part of a Secret, undefined where it has none; `shown` is `namespace/name`. A certificate and its key are read from `tls.crt` and `tls.key`, else
 * from `certFile` and `keyFile`; an authority from `ca.crt`, else `caFile`. Throws an Error that names the key and what is wrong with it.
 */
export function tlsFromSecret(data: SecretData, shown: string): TlsOptions | undefined {
  const caKey = data[standard.ca]?.length ? standard.ca : legacy.ca
  const pair = data[standard.cert]?.length || data[standard.key]?.length ? standard : legacy
  const ca = data[caKey]?.toString()
  const cert = data[pair.cert]?.toString()
  const key = data[pair.key]?.toString()
  if (cert && !key) throw new Error(`secret '${shown}' contains '${pair.cert}' but missing '${pair.key}'`)
  if (key && !cert) throw new Error(`secret '${shown}' contains '${pair.key}' but missing '${pair.cert}'`)
  if (!ca && !cert) return undefined
  once(JSON.stringify([ca, cert, key]), () => {
    if (ca) certificatesIn(ca, shown, caKey)
    if (cert && key) checkPair(cert, key, shown, pair)
  })
  return { ...(ca ? { ca } : {}), ...(cert && key ? { cert, key } : {}) }
}

/** Whether a Secret holds its TLS part, or some of it, under the names of old. */
export function hasLegacyTls(data: SecretData): boolean {
  return Object.values(legacy).some((key) => data[key]?.length)
}

function once(text: string, check: () => void): void {
  const hash = createHash('sha256').update(text).digest('hex')
  if (checked.has(hash)) return
  check()
  if (checked.size >= maxRemembered) checked.clear()
  checked.add(hash)
}

function checkPair(cert: string, key: string, shown: string, names: typeof standard): void {
  const [first] = certificatesIn(cert, shown, names.cert)
  if (!first!.checkPrivateKey(privateKeyOf(key, shown, names.key)))
    throw new Error(`secret '${shown}': '${names.key}' is not the key of '${names.cert}'`)
}

function certificatesIn(pem: string, shown: string, name: string): X509Certificate[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? []
  if (blocks.length === 0) throw new Error(`secret '${shown}': '${name}' has no certificate in PEM`)
  if (blocks.length > maxCertificates)
    throw new Error(`secret '${shown}': '${name}' has more than ${maxCertificates} certificates`)
  return blocks.map((block, i) => {
    try {
      return new X509Certificate(block)
    } catch (err) {
      throw new Error(`secret '${shown}': certificate ${i + 1} of '${name}' is malformed`, { cause: err })
    }
  })
}

function privateKeyOf(pem: string, shown: string, name: string): KeyObject {
  try {
    return createPrivateKey(pem)
  } catch (err) {
    const why = /passphrase|password/i.test(messageOf(err)) || /ENCRYPTED/.test(pem) ? 'is encrypted' : 'is malformed'
    throw new Error(`secret '${shown}': the private key in '${name}' ${why}`, { cause: err })
  }
}
