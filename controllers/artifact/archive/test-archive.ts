import { Writable } from 'node:stream'
import { list, type ReadEntry } from 'tar'
import { writeArchive, type ArchiveOptions, type ArchiveResult } from './archive.ts'
import type { Entries, Entry } from '../entry.ts'
import { makeRandom } from '../test-support.ts'

/** Collects what is written to it. For tests. */
class Sink extends Writable {
  readonly chunks: Buffer[] = []

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.chunks.push(chunk)
    done()
  }
}

/** An archive in memory. For tests. */
export async function archiveOf(
  entries: Entries,
  options?: ArchiveOptions,
): Promise<{ bytes: Buffer; result: ArchiveResult }> {
  const sink = new Sink()
  const result = await writeArchive(entries, sink, options)
  return { bytes: Buffer.concat(sink.chunks), result }
}

/** What is in an archive, as node-tar reads it; nothing that it would only warn of is accepted. For tests. */
export function listed(bytes: Buffer): Promise<ReadEntry[]> {
  const entries: ReadEntry[] = []
  const parser = list({ onReadEntry: (entry) => entries.push(entry), strict: true })
  return new Promise((resolve, reject) => {
    parser.on('end', () => resolve(entries))
    parser.on('error', reject)
    parser.end(bytes)
  })
}

/** A symbolic link. For tests. */
export function linkEntry(path: string, target: string | Buffer): Entry {
  const body = Buffer.from(target)
  return { path, type: 'symlink', mode: 0o777, sizeBytes: body.length, open: () => Promise.resolve(body) }
}

/** Files of text in folders, each with a content id, as a commit has them. `opened` gets the path of whatever is read. For tests. */
export function makeTree(seed: number, count: number, meanBytes: number, opened: string[] = []): Entry[] {
  const random = makeRandom(seed)
  return Array.from({ length: count }, (_, i) => {
    const path = `apps/${random(20)}/${random(10)}/file-${i}.yaml`
    return textEntry(path, random(2 * meanBytes), random(2 ** 31), opened)
  })
}

/** A file of words that follow from its content id. For tests. */
export function textEntry(path: string, sizeBytes: number, contentSeed: number, opened: string[] = []): Entry {
  const open = async (): Promise<Buffer> => {
    opened.push(path)
    const random = makeRandom(contentSeed)
    // Text that repeats at a distance which deflate does not see.
    const words = Array.from({ length: Math.ceil(Math.min(sizeBytes, 40_000) / 6) }, () => `${10_000 + random(1000)}\n`)
    return Buffer.alloc(sizeBytes, words.join(''))
  }
  return { path, mode: 0o644, sizeBytes, contentId: `${contentSeed}:${sizeBytes}`, open }
}
