import { hash } from 'node:crypto'
import { constants } from 'node:fs'
import { open, type FileHandle } from 'node:fs/promises'
import type { MemberCache } from '../archive/member-gzip.ts'
import type { Member } from '../archive/members.ts'
import { codeOf } from './durable.ts'

/** Where the bytes of a member lie, and what they must be. */
interface Place {
  /** Paths of the archive, any of which will do; one object for all members of it. */
  files: readonly string[]
  offset: number
  length: number
  /** Of the compressed bytes: whoever can write to the disk must not be able to pass others off for them. */
  checksum: string
}

/** About 160 bytes each; together the members of 16 GiB of files. */
const maxPlaces = 262_144
/** What is read at once. */
const maxReadBytes = 2 ** 20

/**
 * Knows in which stored archive each gzip member lies that was made lately, so that the next archive takes it from there. Only places are in memory: what is
 * read is checked, and an archive that has been removed or damaged costs no more than compressing again.
 */
export class MemberStore {
  /** By key; the least recently used first. */
  readonly #places = new Map<string, Place>()
  readonly #maxPlaces: number

  constructor(limit: number = maxPlaces) {
    this.#maxPlaces = limit
  }

  /** For one new archive. */
  begin(): MemberSession {
    return new MemberSession(this.#places, this.#maxPlaces)
  }
}

/** What one archive takes from the store, and what it adds once it is stored. */
export class MemberSession implements MemberCache {
  readonly #places: Map<string, Place>
  readonly #maxPlaces: number
  readonly #added: { key: string; offset: number; length: number; checksum: string }[] = []
  /** Archives of which nothing could be read: all their members are made anew at one go, not each when its turn comes. */
  readonly #gone = new Set<Place['files']>()
  #offset = 0

  constructor(places: Map<string, Place>, limit: number) {
    this.#places = places
    this.#maxPlaces = limit
  }

  has(key: string): boolean {
    const place = this.#places.get(key)
    return place !== undefined && !this.#gone.has(place.files)
  }

  async read(members: readonly Member[], at: number): Promise<{ count: number; bytes: Buffer }> {
    const places = this.#adjacent(members, at)
    const [start, end] = [places[0], places.at(-1)]
    if (!start || !end) return { count: 0, bytes: Buffer.alloc(0) }
    const bytes = await readRange(start.files, start.offset, end.offset + end.length - start.offset)
    if (bytes.length === 0) this.#gone.add(start.files)
    let count = 0
    let sound = 0
    for (const { length, checksum } of places) {
      const member = bytes.subarray(sound, sound + length)
      const key = members[at + count]?.key
      if (key === undefined) break
      if (member.length < length || checksumOf(member) !== checksum) {
        this.#places.delete(key)
        break
      }
      this.#record(key, length, checksum)
      sound += length
      count++
    }
    return { count, bytes: bytes.subarray(0, sound) }
  }

  /** The places of the members from `at` on that follow one another in one file. */
  #adjacent(members: readonly Member[], at: number): Place[] {
    const places: Place[] = []
    let bytes = 0
    for (let next = at; next < members.length; next++) {
      const { key } = members[next]!
      const place = key === undefined ? undefined : this.#places.get(key)
      const before = places.at(-1)
      if (!place || (before && (place.files !== before.files || place.offset !== before.offset + before.length))) break
      bytes += place.length
      if (before && bytes > maxReadBytes) break
      places.push(place)
    }
    return places
  }

  add(key: string | undefined, bytes: Buffer): void {
    if (key === undefined) this.#offset += bytes.length
    else this.#record(key, bytes.length, checksumOf(bytes))
  }

  #record(key: string, length: number, checksum: string): void {
    this.#added.push({ key, offset: this.#offset, length, checksum })
    this.#offset += length
  }

  /** The archive is stored, in any of these files: its members will be looked for there. */
  keep(files: readonly string[]): void {
    for (const { key, ...place } of this.#added.slice(-this.#maxPlaces)) {
      this.#places.delete(key)
      this.#places.set(key, { files, ...place })
    }
    for (const key of this.#places.keys()) {
      if (this.#places.size <= this.#maxPlaces) break
      this.#places.delete(key)
    }
  }
}

/** Fewer bytes, or none, where they cannot be had. */
async function readRange(files: readonly string[], offset: number, length: number): Promise<Buffer> {
  const handle = await openFirst(files)
  if (!handle) return Buffer.alloc(0)
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(length), 0, length, offset)
    return buffer.subarray(0, bytesRead)
  } catch {
    return Buffer.alloc(0) // a damaged disk, or no file at all: it is compressed again
  } finally {
    await handle.close()
  }
}

async function openFirst(files: readonly string[]): Promise<FileHandle | undefined> {
  // O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK
  for (const file of files) {
    try {
      return await open(file, flags)
    } catch (err) {
      if (codeOf(err) === '') throw err
    }
  }
  return undefined
}

/** 128 bits are enough. */
function checksumOf(bytes: Buffer): string {
  return hash('sha256', bytes, 'buffer').toString('latin1', 0, 16)
}
