import { createHash, randomUUID } from 'node:crypto'
import { mkdir, open, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises'
import { createReadStream } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import type { Pointer } from './pointer.ts'

/** What is kept of a repository's objects: this many bytes, and each as long as it has been used within this time. */
export interface StoreLimits {
  maxBytes: number
  maxUnusedMs: number
}

/** The content is not what the pointer says. */
export class WrongContentError extends Error {}

/** A larger object is not held in memory. */
export const smallBytes = 2 ** 20
const leftoverMs = 3_600_000

/** The objects of one repository that have been downloaded, a file each, named by its hash. Several processes may share the folder. */
export class ObjectStore {
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
  }

  /** The content, undefined where it is not there. It is hashed again: a stream that is not right fails at its end, and is gone then. */
  async read(object: Pointer): Promise<Buffer | Readable | undefined> {
    const file = this.#file(object)
    const found = await stat(file).catch(() => undefined) // not there yet
    if (found?.size !== object.sizeBytes) return undefined
    await utimes(file, new Date(), new Date()).catch(() => undefined) // swept a moment ago
    if (object.sizeBytes > smallBytes) return Readable.from(this.#checkedStream(file, object), { objectMode: false })
    const content = await readFile(file).catch(() => undefined) // swept a moment ago
    if (content && createHash('sha256').update(content).digest('hex') === object.oid) return content
    await rm(file, { force: true })
    return undefined
  }

  async has(object: Pointer): Promise<boolean> {
    const found = await stat(this.#file(object)).catch(() => undefined) // not there yet
    return found?.size === object.sizeBytes
  }

  /** Passes a body on while it is stored. Throws a WrongContentError at once where there is too much, and at the end where it is not what the pointer says. */
  async *receive(object: Pointer, body: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    const part = join(this.#folder, `${randomUUID()}.part`)
    const file = await open(part, 'wx', 0o600)
    try {
      for await (const chunk of checked(object, body)) {
        await file.appendFile(chunk)
        yield chunk
      }
      await rename(part, this.#file(object))
    } finally {
      await file.close()
      await rm(part, { force: true })
    }
  }

  /** Removes what has not been used for long, then the least recently used until the rest is small enough. */
  async sweep({ maxBytes, maxUnusedMs }: StoreLimits): Promise<void> {
    const names = await readdir(this.#folder).catch(() => []) // nothing has been stored yet
    const files = []
    for (const name of names) {
      const path = join(this.#folder, name)
      const found = await stat(path).catch(() => undefined) // another process was faster
      if (found) files.push({ path, bytes: found.size, usedAtMs: found.mtimeMs, part: name.endsWith('.part') })
    }
    let bytes = 0
    for (const file of files.toSorted((a, b) => b.usedAtMs - a.usedAtMs)) {
      const unusedMs = Date.now() - file.usedAtMs
      if (!file.part) bytes += file.bytes
      const kept = file.part ? unusedMs < leftoverMs : unusedMs < maxUnusedMs && bytes <= maxBytes
      if (!kept) await rm(file.path, { force: true })
    }
  }

  async *#checkedStream(file: string, object: Pointer): AsyncGenerator<Buffer, void, undefined> {
    try {
      yield* checked(object, createReadStream(file))
    } catch (err) {
      await rm(file, { force: true }) // it is downloaded again in the next pass
      throw err
    }
  }

  #file({ oid }: Pointer): string {
    return join(this.#folder, oid)
  }
}

async function* checked(
  { oid, sizeBytes }: Pointer,
  body: AsyncIterable<Buffer>,
): AsyncGenerator<Buffer, void, undefined> {
  const hash = createHash('sha256')
  let received = 0
  for await (const chunk of body) {
    received += chunk.length
    if (received > sizeBytes)
      throw new WrongContentError(`it has more than the ${sizeBytes} bytes that the pointer says`)
    hash.update(chunk)
    yield chunk
  }
  if (received < sizeBytes) throw new WrongContentError(`it has ${received} bytes where the pointer says ${sizeBytes}`)
  if (hash.digest('hex') !== oid) throw new WrongContentError('its content is not what the pointer says')
}
