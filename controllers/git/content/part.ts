import type { Readable } from 'node:stream'
import { DamagedError } from '../mirror/fetch.ts'
import type { Lease } from '../mirror/mirror.ts'
import type { CommitInfo } from './commit.ts'
import { listTree, type Listing, type ListingBudget, type Origin } from './listing.ts'
import { ObjectReader } from './objects.ts'
import { readSubmodules, type Submodule } from './submodule-list.ts'
import { scopeOf } from './scope.ts'
import { outermost } from './sparse.ts'
import { commitFrom, explained, readLeased, withObject, type Place } from './reading.ts'

const maxProcesses = 8

/** The parts of a content that have a process for bodies: a hundred submodules must not have a hundred. */
export class Readers {
  readonly #parts = new Set<Part>()

  /** Lets the part start a process; parts that nobody waits for give theirs up, those first that got it first. */
  admit(part: Part): void {
    this.#parts.delete(part)
    for (const other of this.#parts) {
      if (this.#parts.size < maxProcesses) break
      if (!other.isIdle) continue
      this.#parts.delete(other)
      void other.rest()
    }
    this.#parts.add(part)
  }
}

/** Which commit, and which of its files. */
export interface PartOptions {
  place: Place
  /** Goes before the paths of its files: '' or a folder with `/` at its end. */
  prefix: string
  /** Files and folders, sorted, none of them within another; all without. */
  paths?: readonly string[] | undefined
  /** Shared by all parts of a content. */
  readers: Readers
}

/** A commit whose files become part of a content: the repository's own, or a submodule's. Must be closed. */
export class Part implements Origin {
  readonly place: Place
  readonly prefix: string
  readonly commit: CommitInfo
  /** Equal for equal files, whatever else the commit holds. */
  readonly scope: string
  readonly readers: Readers
  readonly #paths: readonly string[] | undefined
  #lease: Lease
  #reader: ObjectReader | undefined
  #closed = false

  private constructor(
    { place, prefix, paths, readers }: PartOptions,
    { lease, commit, scope }: { lease: Lease; commit: CommitInfo; scope: string },
  ) {
    this.place = place
    this.prefix = prefix
    this.readers = readers
    this.commit = commit
    this.scope = scope
    this.#paths = paths && outermost(paths)
    this.#lease = lease
  }

  /** Sees to it that the commit is there. Throws ReconcileError `GitOperationFailed`. */
  static async open(options: PartOptions): Promise<Part> {
    const place = { ...options.place, partial: options.paths !== undefined }
    return await withObject(place, async (lease) => {
      const commit = commitFrom(place, await readLeased(place, lease, 'commit'))
      const scope = await scopeOf(place, lease, options.paths)
      return new Part({ ...options, place }, { lease, commit, scope })
    })
  }

  get key(): string {
    return this.place.mirror.key
  }

  /** Whether a process is there for bodies, and has nothing to do. */
  get isIdle(): boolean {
    return this.#reader?.idle === true
  }

  /** Lists the files, and sees to it that they are there. A mirror that turns out to be damaged is made anew, once. */
  async list(budget: ListingBudget): Promise<Listing> {
    const { mirror, signal } = this.place
    return await this.#healed(async () => {
      if (this.#lease.partial) await this.#move(() => mirror.fetchFiles(this.place, this.#paths ?? [], signal))
      return await this.#list(budget)
    })
  }

  /** The submodules among its files, and where `.gitmodules` says they are. A second time it comes out of memory. */
  async submodules(): Promise<Submodule[]> {
    const { mirror, signal } = this.place
    const key = `${mirror.key} submodules ${this.commit.tree} ${this.scope}`
    const read = (shared: AbortSignal) => readSubmodules({ ...this.place, signal: shared }, this.#lease, this.#paths)
    const json = await this.#healed(() =>
      mirror.memory.read(key, signal, async (shared) => Buffer.from(JSON.stringify(await read(shared)))),
    )
    return JSON.parse(json.toString()) as Submodule[]
  }

  async #list(budget: ListingBudget): Promise<Listing> {
    const { sha, signal } = this.place
    try {
      const [{ repository }, paths] = [this.#lease, this.#paths]
      // While git lists, the process for the bodies can start; submodules may be too many for that.
      if (this.prefix === '') this.#reader ??= this.#startReader()
      return await listTree({ repository, sha, origin: this, budget, paths, signal })
    } catch (err) {
      throw explained(err, this.#lease, this.place)
    }
  }

  async #healed<R>(work: () => Promise<R>): Promise<R> {
    for (let again = false; ; again = true) {
      try {
        return await work()
      } catch (err) {
        if (again || !(err instanceof DamagedError)) throw err
        await this.#move(() => this.place.mirror.fetchCommit(this.place, this.place.signal))
      }
    }
  }

  async #move(fetch: () => Promise<Lease>): Promise<void> {
    const lease = await fetch()
    await this.rest()
    this.#lease.release()
    this.#lease = lease
    if (!this.#closed) return
    lease.release() // nobody else would any more
    throw new Error('closed')
  }

  /** Reads a blob through one process, which the first call starts. */
  async read(oid: string): Promise<Buffer | Readable> {
    this.#reader ??= this.#startReader()
    return await this.#reader.read(oid, 'blob')
  }

  #startReader(): ObjectReader {
    if (this.#closed) throw new Error('closed')
    const lease = this.#lease
    this.readers.admit(this)
    return new ObjectReader(lease.repository, this.place.signal, (err) => explained(err, lease, this.place))
  }

  /** Ends the process; bodies that are still to come will start another. */
  async rest(): Promise<void> {
    const reader = this.#reader
    this.#reader = undefined
    await reader?.close()
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.rest()
    this.#lease.release()
  }
}
