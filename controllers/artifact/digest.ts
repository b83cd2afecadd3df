import { createHash } from 'node:crypto'
import { ReconcileError } from '../runtime/errors.ts'
import { quote } from './quote.ts'

const hexLengths = { sha256: 64, sha384: 96, sha512: 128, blake3: 64 } as const

/** What `--artifact-digest-algo` may name. */
export type DigestAlgorithm = keyof typeof hexLengths

/** The algorithms that a digest of ours may have, the default first. */
export const digestAlgorithms: readonly DigestAlgorithm[] = ['sha256', 'sha384', 'sha512', 'blake3']

/** Takes bytes piece by piece. */
export interface Hasher {
  update(chunk: Uint8Array): void
  /** `<algorithm>:<hex>` of everything so far; ends the hasher. */
  digest(): string
}

/** The two parts of a digest that has been checked. */
export interface ParsedDigest {
  algorithm: DigestAlgorithm
  hex: string
}

/** Whether a name is one of `digestAlgorithms`. */
export function isDigestAlgorithm(name: string): name is DigestAlgorithm {
  return Object.hasOwn(hexLengths, name)
}

/** A new hasher. blake3 is plain JavaScript (about 50 MB/s, the others 1 GB/s) and is loaded by the first one who asks for it. */
export async function makeHasher(algorithm: DigestAlgorithm): Promise<Hasher> {
  if (algorithm !== 'blake3') {
    const hash = createHash(algorithm)
    return { update: (chunk) => void hash.update(chunk), digest: () => `${algorithm}:${hash.digest('hex')}` }
  }
  const { blake3 } = await import('@noble/hashes/blake3.js')
  const hash = blake3.create({})
  return {
    update: (chunk) => void hash.update(chunk),
    digest: () => `${algorithm}:${Buffer.from(hash.digest()).toString('hex')}`,
  }
}

/** The parts of `<algorithm>:<hex>`; throws InvalidDigest where the algorithm is unknown or the hex is not lower case and of its length. */
export function parseDigest(text: string): ParsedDigest {
  const colon = text.indexOf(':')
  const algorithm = text.slice(0, Math.max(colon, 0))
  const hex = text.slice(colon + 1)
  if (colon < 0) throw invalid(text, 'it must be <algorithm>:<hex>')
  if (!isDigestAlgorithm(algorithm)) throw invalid(text, `the algorithm must be one of ${digestAlgorithms.join(', ')}`)
  if (hex.length !== hexLengths[algorithm] || !/^[0-9a-f]+$/.test(hex)) {
    throw invalid(text, `${algorithm} has ${hexLengths[algorithm]} lower-case hex digits`)
  }
  return { algorithm, hex }
}

function invalid(text: string, rule: string): ReconcileError {
  return new ReconcileError('InvalidDigest', `invalid digest ${quote(text)}: ${rule}`)
}
