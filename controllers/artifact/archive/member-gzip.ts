import { availableParallelism } from 'node:os'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { PlannedFile } from './archive-plan.ts'
import { readBodies, type FileBody } from './bodies.ts'
import { equalBlocks, gzipLevel, type Compressor } from './gzip.ts'
import { planMembers, largeFileBytes, segmentBytes, type Member } from './members.ts'
import { makePacer } from './pace.ts'
import { Semaphore } from '../storage/locks.ts'
import { endOfArchive, headersOf, paddingOf, sharedFolders } from './tar-header.ts'

/** Compressed members of earlier archives, and what becomes of those of this one: it hears of all of them in their order, by `read` or by `add`. */
export interface MemberCache {
  has(key: string): boolean
  /** The bytes of the `count` members from `at` on that lie together. None where the first turns out not to be there any more, which `has` then knows. */
  read(members: readonly Member[], at: number): Promise<{ count: number; bytes: Buffer }>
  /** A member that has been made anew. */
  add(key: string | undefined, bytes: Buffer): void
}

/** A thread of zlib for each processor; one of libuv's four is left to files. */
const parallel = Math.min(availableParallelism() + 1, 3)
/** Shared by all archives: each call in flight has a quarter of a MiB of its own. */
const threads = new Semaphore(parallel)
/** Most members fit into one piece of this size. */
const outputBytes = 32 * 1024

const gzipBuffer = promisify<Buffer, { level: number; chunkSize: number }, Buffer>(gzip)

/**
 * A chain of gzip members (RFC 1952, 2.2), each of some files of the archive: those that the cache has are neither read nor compressed again. The bytes are the
 * same whatever the cache has.
 */
export function gzipMembers(cache?: MemberCache): Compressor {
  return async function* (files, signal) {
    const members = await planMembers(files, makePacer(signal))
    const isKnown = (at: number): boolean => {
      const key = members[at]?.key
      return cache !== undefined && key !== undefined && cache.has(key)
    }
    const added = (key: string | undefined, bytes: Buffer): Buffer => {
      cache?.add(key, bytes)
      return bytes
    }
    // Bodies must be asked for in their order: what is known is read, and found to be sound, before anything behind it is opened.
    for (let at = 0; at < members.length;) {
      signal?.throwIfAborted()
      if (cache && isKnown(at)) {
        const { count, bytes } = await cache.read(members, at)
        at += count
        if (count > 0) yield bytes
        continue
      }
      const unknown = members.slice(at, endOfUnknown(members, at, isKnown))
      for await (const bytes of compressed(tarOf(files, unknown, signal))) yield added(members[at++]?.key, bytes)
    }
    yield added(undefined, await compress(endOfArchive))
  }
}

/** A body can be opened only once: from the first unknown segment of a large file on, the others are made anew with it. */
function endOfUnknown(members: readonly Member[], at: number, isKnown: (at: number) => boolean): number {
  let end = at + 1
  while (end < members.length && (members[end]!.segment > 0 || !isKnown(end))) end++
  return end
}

function compress(bytes: Buffer): Promise<Buffer> {
  return threads.run(() => gzipBuffer(bytes, { level: gzipLevel, chunkSize: outputBytes }))
}

/** Compresses several members at a time, and gives them in their order. */
async function* compressed(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const running: Promise<Buffer>[] = []
  for await (const piece of pieces) {
    const result = compress(piece)
    result.catch(() => {}) // awaited below, unless an earlier one ends everything
    running.push(result)
    if (running.length === parallel) yield await running.shift()!
  }
  for (const result of running) yield await result
}

/** The tar bytes of each of these neighbouring members; the first may be a later segment of its file. */
async function* tarOf(
  files: readonly PlannedFile[],
  members: readonly Member[],
  signal: AbortSignal | undefined,
): AsyncGenerator<Buffer> {
  const [{ first, segment }, last] = [members[0]!, members.at(-1)!]
  const ends = new Set(members.map(({ end }) => end))
  let at = first
  const parts: Buffer[] = []
  for await (const { file, content } of readBodies(files.slice(first, last.end), signal)) {
    const shared = sharedFolders(files[at - 1]?.path ?? '', file.path)
    // Small files always come whole.
    if (file.sizeBytes > largeFileBytes || !Buffer.isBuffer(content)) {
      yield* segmentsFrom({ file, content }, shared, at === first ? segment : 0)
    } else {
      parts.push(...headersOf(file, shared), content, paddingOf(file))
      if (ends.has(at + 1)) yield Buffer.concat(parts.splice(0))
    }
    at++
  }
}

/** The members of a large file: its headers go with the first segment, its padding with the last. */
async function* segmentsFrom({ file, content }: FileBody, shared: number, from: number): AsyncGenerator<Buffer> {
  const last = Math.ceil(file.sizeBytes / segmentBytes) - 1
  let segment = 0
  for await (const block of equalBlocks(Buffer.isBuffer(content) ? [content] : content, segmentBytes)) {
    const head = segment === 0 ? headersOf(file, shared) : []
    const tail = segment === last ? [paddingOf(file)] : []
    if (segment >= from) yield head.length + tail.length > 0 ? Buffer.concat([...head, block, ...tail]) : block
    segment++
  }
}
