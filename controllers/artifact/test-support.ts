import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Entry } from './entry.ts'

/** A new empty folder; removed with `await using`. For tests. */
export async function makeTempFolder(): Promise<{ path: string; [Symbol.asyncDispose](): Promise<void> }> {
  const path = await mkdtemp(join(tmpdir(), 'openflux-artifact-'))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}

/** Entries by path and content; `run.sh`-like names are executable. For tests. */
export function entriesOf(files: Record<string, string | Buffer>): Entry[] {
  return Object.entries(files).map(([path, content]) => {
    const body = Buffer.from(content)
    const mode = path.endsWith('.sh') ? 0o755 : 0o644
    return { path, mode, sizeBytes: body.length, open: () => Promise.resolve(body) }
  })
}

/** Random numbers below `limit` that a seed repeats (mulberry32). For tests. */
export function makeRandom(seed: number): (limit: number) => number {
  let state = seed >>> 0
  return (limit) => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit
  }
}

/** Bytes that a seed repeats and that cannot be compressed. For tests. */
export function randomBytes(seed: number, bytes: number): Buffer {
  const random = makeRandom(seed)
  const content = Buffer.alloc(bytes)
  for (let at = 0; at + 4 <= bytes; at += 4) content.writeUInt32LE(random(2 ** 32), at)
  return content
}
