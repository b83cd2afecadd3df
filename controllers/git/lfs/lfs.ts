import { buffer } from 'node:stream/consumers'
import type { Readable } from 'node:stream'
import type { Entries, Entry } from '../../artifact/entry.ts'
import { messageOf } from '../../runtime/errors.ts'
import { connectLfs, type LfsSource } from './discovery.ts'
import { lfsFailure, type LfsOwner } from './lfs-http.ts'
import { ObjectStore } from './object-store.ts'
import { LfsObjects } from './objects.ts'
import { minPointerBytes, parsePointer, pointerLimitBytes, type Pointer } from './pointer.ts'

export interface LfsOptions {
  /** The repository's. */
  remote: LfsSource
  /** Tells apart whose credentials gave access, and to which repository. */
  key: string
  /** Where its objects are kept; made where it is missing. Nobody with another key may use it. */
  folder: string
  /** The most bytes that are kept from one pass to the next. */
  maxBytes: number
  signal: AbortSignal
}

/** How many files are looked at ahead of the one that is passed on. */
const aheadEntries = 64
const maxRemembered = 20_000
const maxUnusedMs = 7 * 24 * 3_600_000

/** What a pointer stands for. */
class LfsFile implements Entry {
  readonly path: string
  readonly mode: number
  readonly sizeBytes: number
  readonly contentId: string
  readonly #pointer: Pointer
  readonly #objects: LfsObjects

  constructor({ path, mode }: Entry, pointer: Pointer, key: string, objects: LfsObjects) {
    this.path = path
    this.mode = mode
    this.sizeBytes = pointer.sizeBytes
    this.contentId = `lfs:${key}:${pointer.oid}`
    this.#pointer = pointer
    this.#objects = objects
  }

  open(): Promise<Buffer | Readable> {
    return this.#objects.open({ ...this.#pointer, path: this.path })
  }
}

/**
 * Puts in the place of each LFS pointer the file that it stands for. Any file that is a pointer to the letter is taken for one, whatever `.gitattributes` says. Objects are
 * asked for when the first file is opened, downloaded when theirs is, and kept. Throws ReconcileError `GitOperationFailed`, and so do the entries.
 */
export async function* withLfs(entries: Entries, options: LfsOptions): AsyncGenerator<Entry, void, undefined> {
  const { remote, key, folder, maxBytes, signal } = options
  const owner = { shownUrl: remote.url, access: remote.access }
  const store = new ObjectStore(folder)
  await store.sweep({ maxBytes, maxUnusedMs })
  const objects = new LfsObjects(owner, () => connectLfs(remote, signal), store, signal)
  const replaced = async (entry: Entry): Promise<Entry> => {
    const pointer = await pointerIn(entry, owner)
    if (!pointer) return entry
    await objects.expect({ ...pointer, path: entry.path })
    return new LfsFile(entry, pointer, key, objects)
  }
  for await (const some of groups(entries)) yield* await Promise.all(some.map(replaced))
}

/** What is no pointer need not be read for that again. Shared by all repositories; null where there is none. */
const remembered: Map<string, Pointer | null> = new Map()

async function pointerIn(entry: Entry, owner: LfsOwner): Promise<Pointer | undefined> {
  const { type, sizeBytes, contentId } = entry
  if (type === 'symlink' || sizeBytes < minPointerBytes || sizeBytes >= pointerLimitBytes) return undefined
  const known = contentId === undefined ? undefined : remembered.get(contentId)
  if (known !== undefined) return known ?? undefined
  const pointer = await readPointer(entry, owner)
  if (remembered.size >= maxRemembered) remembered.clear()
  if (contentId !== undefined) remembered.set(contentId, pointer ?? null)
  return pointer
}

async function readPointer(entry: Entry, owner: LfsOwner): Promise<Pointer | undefined> {
  const content = await entry.open()
  try {
    return parsePointer(Buffer.isBuffer(content) ? content : await buffer(content))
  } catch (err) {
    throw lfsFailure(owner, `'${entry.path}': ${messageOf(err)}`, { cause: err })
  }
}

async function* groups(entries: Entries): AsyncGenerator<Entry[], void, undefined> {
  let group: Entry[] = []
  for await (const entry of entries) {
    group.push(entry)
    if (group.length < aheadEntries) continue
    yield group
    group = []
  }
  yield group
}
