import { createHash } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { EnvHttpProxyAgent, interceptors, request } from 'undici'

const connectTimeoutMs = 3000
const stallTimeoutMs = 15_000
const totalTimeoutMs = 600_000

async function get(url: string) {
  const agent = new EnvHttpProxyAgent({
    connect: { timeout: connectTimeoutMs },
    headersTimeout: stallTimeoutMs,
    bodyTimeout: stallTimeoutMs,
  })
  const dispatcher = agent.compose(interceptors.redirect({ maxRedirections: 5 }))
  const response = await request(url, { dispatcher, signal: AbortSignal.timeout(totalTimeoutMs) })
  if (response.statusCode === 200) return response
  await response.body.dump()
  throw new Error(`${url} answered ${response.statusCode}`)
}

/** The text at a URL, at most `maxBytes` of it. Throws when it is longer, or not to be had within seconds. */
export async function downloadText(url: string, maxBytes = 1 << 20): Promise<string> {
  const chunks: Buffer[] = []
  const { body } = await get(url)
  await pipeline(body, limit(url, maxBytes), async (source: AsyncIterable<Buffer>) => {
    for await (const chunk of source) chunks.push(chunk)
  })
  return Buffer.concat(chunks).toString()
}

/**
 * Writes what is at a URL into a file (which is of no use when this throws). Throws unless its SHA-256 is the given one
 * (64 hex digits); also when it is longer than `maxBytes`, when it cannot connect for 3 s or when it stalls for 15 s.
 */
export async function downloadFile(url: string, file: string, sha256: string, maxBytes = 500 << 20): Promise<void> {
  const { body } = await get(url)
  const hash = createHash('sha256')
  const hashing = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk)
      done(null, chunk)
    },
  })
  await pipeline(body, limit(url, maxBytes), hashing, createWriteStream(file, { mode: 0o755 }))
  const actual = hash.digest('hex')
  if (actual !== sha256) throw new Error(`${url} has SHA-256 ${actual}, expected ${sha256}`)
}

function limit(url: string, maxBytes: number): Transform {
  let bytes = 0
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length
      done(bytes > maxBytes ? new Error(`${url} is longer than ${maxBytes} bytes`) : null, chunk)
    },
  })
}

/** The SHA-256 of a file in the output of `sha256sum` (or the bare digest of a `.sha256` file). Throws when not there. */
export function checksumOf(file: string, sums: string): string {
  const lines = sums.split('\n').map((line) => line.trim().split(/\s+\*?/))
  const digest = lines.find(([, name]) => name === file)?.[0] ?? (lines[0]?.length === 1 ? lines[0][0] : undefined)
  if (!digest || !/^[0-9a-f]{64}$/.test(digest)) throw new Error(`no SHA-256 of ${file} in the published checksums`)
  return digest
}
