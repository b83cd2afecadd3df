import { Header } from 'tar'
import { messageOf } from '../../controllers/runtime/errors.ts'
import { ArchiveError } from './archive-error.ts'
import { type ByteReader, cutShort } from './byte-reader.ts'
import { parsePax } from './pax.ts'

/** One member of an archive. */
export interface TarEntry {
  type: 'file' | 'folder' | 'symlink' | 'other'
  /** What it is in words, e.g. `Link` or `CharacterDevice`, for messages. */
  typeName: string
  /** As written in the archive; may be anything. */
  path: string
  mode: number
  sizeBytes: number
  /** The content; what is not read of it is skipped. */
  body: AsyncIterable<Buffer>
}

const blockBytes = 512
/** The largest extended header; names and attributes are all that it holds. */
const maxMetaBytes = 1024 * 1024

/** What extended headers say about the next member. */
interface Overrides {
  path?: string
  sizeBytes?: number
}

/**
 * The members of a tar stream (ustar with pax and GNU long names), one at a time and without ever holding more than a chunk of it. Reading is strict: what
 * another reader might take otherwise is an error. Throws on a damaged or cut stream.
 */
export async function* readTar(bytes: ByteReader): AsyncGenerator<TarEntry> {
  let overrides: Overrides = {}
  for (;;) {
    const block = await bytes.read(blockBytes)
    if (!block) throw new ArchiveError('the end marker is missing')
    const header = parseHeader(block)
    if (header.nullBlock) return expectEnd(bytes, overrides)
    const { typeKey } = header
    const sizeBytes = checkedSize(header.size)
    if (typeKey === 'g') refuseGlobals(parsePax(await readMeta(bytes, sizeBytes)))
    else if (typeKey === 'x' || typeKey === 'X') paxOverrides(parsePax(await readMeta(bytes, sizeBytes)), overrides)
    else if (typeKey === 'L' || typeKey === 'N') overrides.path = gnuName(await readMeta(bytes, sizeBytes))
    else if (typeKey === 'K')
      await readMeta(bytes, sizeBytes) // the target of a link, which is never followed
    else {
      const { path = '', type } = header
      const entry = { path, sizeBytes, ...overrides, type: typeOf(typeKey), typeName: type, mode: header.mode ?? 0 }
      if (entry.type !== 'file' && entry.sizeBytes > 0) throw new ArchiveError(`a ${type} with content`)
      yield* member(bytes, entry)
      overrides = {}
    }
  }
}

async function* member(bytes: ByteReader, entry: Omit<TarEntry, 'body'>): AsyncGenerator<TarEntry> {
  let left = entry.sizeBytes
  async function* content(): AsyncGenerator<Buffer> {
    while (left > 0) {
      const part = await bytes.some(left)
      if (!part) throw cutShort(left)
      left -= part.length
      yield part
    }
  }
  yield { ...entry, body: content() }
  for await (const _ of content()); // what was not read of it
  await skip(bytes, paddingOf(entry.sizeBytes))
}

function paddingOf(sizeBytes: number): number {
  return (blockBytes - (sizeBytes % blockBytes)) % blockBytes
}

async function readMeta(bytes: ByteReader, sizeBytes: number): Promise<Buffer> {
  if (sizeBytes > maxMetaBytes) throw new ArchiveError(`an extended header of ${sizeBytes} bytes`)
  const content = await bytes.read(sizeBytes)
  if (!content) throw cutShort(sizeBytes)
  await skip(bytes, paddingOf(sizeBytes))
  return content
}

async function skip(bytes: ByteReader, length: number): Promise<void> {
  if (!(await bytes.read(length))) throw cutShort(length)
}

/** Two blocks of zeros end an archive, and nothing but zeros may follow: a second archive behind the first is read by some and not by others. */
async function expectEnd(bytes: ByteReader, overrides: Overrides): Promise<void> {
  if (Object.keys(overrides).length > 0) throw new ArchiveError('an extended header without a member')
  for (let chunk = await bytes.some(Infinity); chunk; chunk = await bytes.some(Infinity)) {
    if (chunk.some((byte) => byte !== 0)) throw new ArchiveError('data after the end marker')
  }
}

function parseHeader(block: Buffer): Header {
  const header = decode(block)
  if (!header.nullBlock && !header.cksumValid)
    throw new ArchiveError('a header with a wrong checksum, or no tar archive')
  return header
}

function decode(block: Buffer): Header {
  try {
    return new Header(block)
  } catch (err) {
    throw new ArchiveError(`a header that cannot be read: ${messageOf(err)}`)
  }
}

function checkedSize(size: number | undefined): number {
  if (size === undefined || !Number.isSafeInteger(size) || size < 0)
    throw new ArchiveError('a header without a usable size')
  return size
}

function typeOf(typeKey: string): TarEntry['type'] {
  if (typeKey === '0') return 'file'
  if (typeKey === '5') return 'folder'
  return typeKey === '2' ? 'symlink' : 'other'
}

function paxOverrides(records: Map<string, string>, overrides: Overrides): void {
  for (const [key, value] of records) {
    if (key.startsWith('GNU.sparse.')) throw new ArchiveError('a sparse file')
    if (key === 'path') overrides.path = value
    if (key === 'size') overrides.sizeBytes = checkedSize(/^\d+$/.test(value) ? Number(value) : undefined)
  }
}

/** Nobody means a name or size for all members; git writes a comment here. */
function refuseGlobals(records: Map<string, string>): void {
  for (const key of ['path', 'linkpath', 'size'])
    if (records.has(key)) throw new ArchiveError(`a global extended header that sets '${key}'`)
}

function gnuName(content: Buffer): string {
  const end = content.indexOf(0)
  return content.toString('utf8', 0, end < 0 ? content.length : end)
}
