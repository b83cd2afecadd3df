import { randomUUID } from 'node:crypto'
import { rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '../../runtime/errors.ts'
import type { GitHome } from '../environment.ts'
import { aborted } from '../failure.ts'
import { Fetcher, type WantedCommit } from './fetcher.ts'
import { lockFolder } from './folder-lock.ts'
import { Holds } from './holds.ts'
import { removeLeftovers } from './leftovers.ts'
import type { Remote } from '../protocol/remote.ts'
import type { ObjectMemory } from './object-memory.ts'
import { Refusals } from './refusals.ts'
import { BareRepository, bytesOf } from './repository.ts'
import { Shelf } from './shelf.ts'
import { Mutex, SharedCalls } from '../../runtime/shared-calls.ts'

export interface MirrorOptions {
  /** Tells apart both the repository and whose credentials are used; safe in file names, and not reversible. */
  key: string
  folder: string
  home: GitHome
  remote: Remote
  /** Limit of the repository's size on disk. */
  maxBytes: number
  /** Commits that stay fetched; older ones go. */
  maxCommits: number
  /** More packs than this become one. */
  maxPacks: number
  /** Shared by all mirrors. */
  memory: ObjectMemory
  warn: (message: string) => void
  /** Called when something may have been written to the disk. */
  changed: () => void
}

/** The right to read a commit that is in a mirror; as long as it is held the commit stays. */
export interface Lease {
  repository: BareRepository
  /** True: its folders are there, but perhaps not all of its files. */
  partial: boolean
  release: () => void
  /** To be called when reading has failed: the mirror is made anew before it is used again. */
  reportDamage: () => void
}

const compactionMs = 600_000

/** What is known on disk of one repository as one set of credentials sees it. Used by all objects that share both, and kept. */
export class Mirror {
  readonly key: string
  /** What has been read of it, and of all others. */
  readonly memory: ObjectMemory
  readonly remote: Remote
  readonly #options: MirrorOptions
  /** Commits, each with its files and, if the server is any good, without history. */
  readonly #whole: Shelf
  /** Commits of which some files are enough. */
  readonly #partial: Shelf
  /** History without files, to answer which commit belongs to which ref. */
  readonly #history: BareRepository
  readonly #mutex = new Mutex()
  readonly #fetches = new SharedCalls<Shelf>()
  readonly #holds = new Holds()
  readonly #ancestors = new Set<string>()
  readonly #refusals = new Refusals()
  #usedAtMs = Date.now()

  constructor(options: MirrorOptions) {
    this.#options = options
    this.key = options.key
    this.memory = options.memory
    this.remote = options.remote
    const repository = (name: string) => new BareRepository(join(options.folder, name), options.home)
    this.#whole = new Shelf(repository('repository.git'), { ...options, partial: false })
    this.#partial = new Shelf(repository('partial.git'), { ...options, partial: true })
    this.#history = repository('history.git')
  }

  /** Where the LFS objects of this repository are kept, and what to call when some may have come. */
  get lfs(): { folder: string; changed: () => void } {
    return { folder: join(this.#options.folder, 'lfs'), changed: this.#options.changed }
  }

  /** Whether something is being read. */
  get isInUse(): boolean {
    return this.#holds.any
  }

  /** Since when nobody has asked for anything (ms since 1970); now, while something is being read. */
  get usedAtMs(): number {
    return this.isInUse ? Date.now() : this.#usedAtMs
  }

  /** To be called on every pass, also where nothing has to be fetched. */
  touch(): void {
    this.#usedAtMs = Date.now()
  }

  /** Whether the commit is there, in whole or in part, so that handing it out asks nobody. */
  async has(sha: string): Promise<boolean> {
    return (await this.#shelfOf({ sha, partial: true })) !== undefined
  }

  /**
   * Sees to it that the commit and its files (or, where it is wanted in part, at least its folders) are on disk. Concurrent calls for one commit
   * share one fetch. Throws ReconcileError `GitOperationFailed`.
   */
  async fetchCommit(want: WantedCommit, signal: AbortSignal): Promise<Lease> {
    return await this.#leased(want.sha, signal, async () => {
      const shelf = await this.#shelfOf(want)
      if (shelf) return shelf
      return await this.#fetches.run(keyOf(want), signal, (shared) =>
        this.#exclusively(shared, (fetcher) => this.#ensure(want, fetcher)),
      )
    })
  }

  /** Sees to it that the files at and below the paths are on disk too. The paths must be there. */
  async fetchFiles(want: WantedCommit, paths: readonly string[], signal: AbortSignal): Promise<Lease> {
    return await this.#leased(want.sha, signal, () =>
      this.#fetches.run(['files', want.sha, ...paths].join('\0'), signal, (shared) =>
        this.#ensureFiles(want, paths, shared),
      ),
    )
  }

  /** Whether `sha` is `tip.sha` or one of its ancestors; `tip.ref` is where the server has the tip. */
  async contains(tip: WantedCommit & { ref: string }, sha: string, signal: AbortSignal): Promise<boolean> {
    this.touch()
    const key = `${sha} ${tip.sha}`
    if (sha === tip.sha || this.#ancestors.has(key)) return true
    try {
      const found = await this.#exclusively(signal, (fetcher) =>
        this.#refusals.run(key, () => fetcher.searchHistory(sha, tip.ref)),
      )
      this.#options.changed()
      if (this.#ancestors.size > 1000) this.#ancestors.clear()
      if (found) this.#ancestors.add(key)
      return found
    } catch (err) {
      throw signal.aborted ? aborted(this.remote.url, signal) : err
    }
  }

  /** What all of it takes on disk. */
  async sizeBytes(): Promise<number> {
    const repositories = [this.#whole.repository, this.#partial.repository, this.#history]
    const sizes = [...repositories.map((repository) => repository.sizeBytes()), bytesOf(this.lfs.folder)]
    return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
  }

  /** Deletes all of it, unless something is being read. It may be used again afterwards. */
  async remove(signal: AbortSignal): Promise<void> {
    await this.#exclusively(signal, async () => {
      if (this.isInUse) return
      const aside = `${this.#options.folder}.${randomUUID()}.removed`
      await rename(this.#options.folder, aside)
      await rm(aside, { recursive: true, force: true })
    })
  }

  async #leased(sha: string, signal: AbortSignal, fetch: () => Promise<Shelf>): Promise<Lease> {
    this.touch()
    const release = this.#holds.add(sha)
    try {
      const shelf = await fetch()
      const { repository, partial } = shelf
      return { repository, partial, release, reportDamage: () => shelf.reportDamage() }
    } catch (err) {
      release()
      throw signal.aborted ? aborted(this.remote.url, signal) : err
    }
  }

  async #shelfOf({ sha, partial }: WantedCommit): Promise<Shelf | undefined> {
    if (await this.#whole.has(sha)) return this.#whole
    return partial && (await this.#partial.has(sha)) ? this.#partial : undefined
  }

  /** Alone in this process, and alone among the processes that share the folder. */
  async #exclusively<R>(signal: AbortSignal, work: (fetcher: Fetcher) => Promise<R>): Promise<R> {
    const { folder, home, maxBytes, warn } = this.#options
    return await this.#mutex.run(signal, async () => {
      const lock = await lockFolder(folder, signal)
      try {
        await writeFile(join(folder, 'url'), `${this.remote.url}\n`)
        await removeLeftovers(folder)
        const onStart = lock.recordGroup
        const [{ repository }, { repository: partial }] = [this.#whole, this.#partial]
        const repositories = { repository, partial, history: this.#history }
        return await work(new Fetcher({ ...repositories, remote: this.remote, home, maxBytes, signal, onStart, warn }))
      } finally {
        await lock.release()
      }
    })
  }

  async #ensure(want: WantedCommit, fetcher: Fetcher): Promise<Shelf> {
    await this.#partial.heal()
    await this.#whole.heal()
    const shelf = await this.#shelfOf(want)
    if (shelf) return shelf
    const fetched = await this.#refusals.run(keyOf(want), async () => {
      if (want.partial && (await fetcher.fetchFolders(want))) return this.#partial
      await fetcher.fetchCommit(want)
      return this.#whole
    })
    return await this.#tidied(fetched)
  }

  async #ensureFiles(want: WantedCommit, paths: readonly string[], signal: AbortSignal): Promise<Shelf> {
    const known = await this.#shelfOf({ ...want, partial: true })
    if (known && (await known.hasFiles(want.sha, paths, signal))) return known
    return await this.#exclusively(signal, async (fetcher) => {
      const shelf = await this.#ensure({ ...want, partial: true }, fetcher)
      if (!shelf.partial) return shelf
      const key = [want.sha, ...paths].join('\0')
      if (await this.#refusals.run(key, () => fetcher.fetchFiles(want, paths))) return await this.#tidied(shelf)
      return await this.#ensure({ ...want, partial: false }, fetcher)
    })
  }

  async #tidied(shelf: Shelf): Promise<Shelf> {
    const { changed, warn } = this.#options
    try {
      // Nobody waits for it who only wants a commit.
      if (await shelf.dropOld((sha) => this.#holds.has(sha))) void this.#compact(shelf)
    } catch (err) {
      warn(`old commits not removed: ${messageOf(err)}`) // the new one is there, which is what was asked for
    }
    changed()
    return shelf
  }

  async #compact(shelf: Shelf): Promise<void> {
    const signal = AbortSignal.timeout(compactionMs)
    try {
      await this.#exclusively(signal, () => shelf.compact(signal))
      this.#options.changed()
    } catch (err) {
      this.#options.warn(`mirror not compacted: ${messageOf(err)}`) // the next fetch will try again
    }
  }
}

function keyOf({ sha, partial = false }: WantedCommit): string {
  return partial ? `partial ${sha}` : sha
}
