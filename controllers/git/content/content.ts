import type { Entries, Entry } from '../../artifact/entry.ts'
import type { Mirror } from '../mirror/mirror.ts'
import type { Mirrors } from '../mirror/mirrors.ts'
import type { CommitInfo } from './commit.ts'
import { ListingBudget, type ListingLimits } from './listing.ts'
import { Part, Readers } from './part.ts'
import { sparsePathsOf } from './sparse.ts'
import { openSubmodules } from './submodules.ts'

export interface ContentOptions {
  mirror: Mirror
  sha: string
  /** Where the server has just said the commit is; absent where nobody has asked. */
  ref?: string | undefined
  /** `spec.sparseCheckout`. */
  sparse?: readonly string[] | undefined
  /** Where submodules come from; without it they are left out. */
  submodules?: Mirrors | undefined
  limits?: ListingLimits | undefined
  /** What becomes of the entries that come from one mirror, such as LFS pointers: a submodule's belong to its own repository. */
  transform?: ((entries: Entries, mirror: Mirror) => Entries) | undefined
  signal: AbortSignal
}

/** The files of one commit, to be read straight out of the mirror. */
export interface Content {
  commit: CommitInfo
  /** Equal only for equal entries that were got with equal credentials. */
  contentKey: string
  /**
   * Starts no process before the first is asked for. Bodies come in the order in which they are asked for. Where the mirror turns out to be damaged it
   * is made anew, at once while nothing has been read yet, else in the next pass.
   */
  entries: AsyncIterable<Entry>
  /** Submodules that are left out; 0 before the entries have been listed. */
  readonly leftOut: number
  /** Ends what is being read. */
  close(): Promise<void>
}

/**
 * Opens a commit, which is fetched where it is missing, and so are its submodules if they are wanted. Throws ReconcileError `GitOperationFailed`, or a
 * StalledError that names an entry of `sparse`; the entries may throw `TooManyFiles` too.
 */
export async function openContent(options: ContentOptions): Promise<Content> {
  const { mirror, sha, ref, sparse, limits, transform, signal } = options
  const place = { mirror, sha, ref, signal }
  const root = await Part.open({ place, prefix: '', paths: sparsePathsOf(sparse), readers: new Readers() })
  try {
    const submodules = options.submodules ? await openSubmodules(root, options.submodules) : []
    return new CommitContent([root, ...submodules], new ListingBudget(limits), transform)
  } catch (err) {
    await root.close()
    throw err
  }
}

class CommitContent implements Content {
  readonly commit: CommitInfo
  readonly contentKey: string
  readonly entries: AsyncIterable<Entry>
  readonly #parts: readonly Part[]
  readonly #transform: NonNullable<ContentOptions['transform']>
  #leftOut = 0

  constructor(
    parts: readonly [Part, ...Part[]],
    budget: ListingBudget,
    transform: ContentOptions['transform'] = (entries) => entries,
  ) {
    this.#parts = parts
    this.#transform = transform
    this.commit = parts[0].commit
    this.contentKey = JSON.stringify(['git', ...this.#parts.map(({ prefix, key, scope }) => [prefix, key, scope])])
    this.entries = { [Symbol.asyncIterator]: () => this.#list(budget) }
  }

  get leftOut(): number {
    return this.#leftOut
  }

  /** All are listed before the first is given: a mirror that turns out to be damaged can be made anew until then. */
  async *#list(budget: ListingBudget): AsyncGenerator<Entry, void, undefined> {
    const listings: Entry[][] = []
    let gitlinks = 0
    for (const part of this.#parts) {
      const listing = await part.list(budget)
      listings.push(listing.entries)
      gitlinks += listing.gitlinks.length
    }
    this.#leftOut = gitlinks - (this.#parts.length - 1)
    for (const [i, entries] of listings.entries()) yield* this.#transform(entries, this.#parts[i]!.place.mirror)
  }

  async close(): Promise<void> {
    await Promise.all(this.#parts.map((part) => part.close()))
  }
}
