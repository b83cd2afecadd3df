import { mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '../../runtime/errors.ts'
import type { GitHome } from '../environment.ts'
import { aborted } from '../failure.ts'
import { TooLargeError } from './fetch.ts'
import { Fetcher, type WantedCommit } from './fetcher.ts'
import { lockFolder } from './folder-lock.ts'
import type { Remote } from '../protocol/remote.ts'
import { BareRepository } from './repository.ts'
import { Mutex, SharedCalls } from '../../runtime/shared-calls.ts'

export interface MirrorOptions {
  folder: string
  home: GitHome
  remote: Remote
  /** Limit of the repository's size on disk. */
  maxBytes: number
  /** Commits that stay fetched; older ones go. */
  maxCommits: number
  warn: (message: string) => void
}

/** The right to read a commit that is in a mirror; as long as it is held the commit stays. */
export interface Lease {
  repository: BareRepository
  release: () => void
  /** To be called when reading has failed: the mirror is made anew before it is used again. */
  reportDamage: () => void
}

const maxPacks = 32
const refusalMs = 600_000
const leftoverMs = 60_000

/** What is known on disk of one repository as one set of credentials sees it. Used by all objects that share both, and kept. */
export class Mirror {
  readonly remote: Remote
  readonly #options: MirrorOptions
  /** Commits, each with its files and, if the server is any good, without history. */
  readonly #repository: BareRepository
  /** History without files, to answer which commit belongs to which ref. */
  readonly #history: BareRepository
  readonly #mutex = new Mutex()
  readonly #fetches = new SharedCalls<void>()
  readonly #leases = new Map<string, number>()
  readonly #ancestors = new Set<string>()
  readonly #tooLarge = new Map<string, { error: TooLargeError; untilMs: number }>()
  #damaged = false
  #usedAtMs = Date.now()

  constructor(options: MirrorOptions) {
    this.#options = options
    this.remote = options.remote
    this.#repository = new BareRepository(join(options.folder, 'repository.git'), options.home)
    this.#history = new BareRepository(join(options.folder, 'history.git'), options.home)
  }

  /** Since when nobody has asked for anything (ms since 1970); now, while something is being read. */
  get usedAtMs(): number {
    return this.#leases.size > 0 ? Date.now() : this.#usedAtMs
  }

  /** To be called on every pass, also where nothing has to be fetched. */
  touch(): void {
    this.#usedAtMs = Date.now()
  }

  /** Whether the commit is there, so that handing it out asks nobody. */
  async has(sha: string): Promise<boolean> {
    return !this.#damaged && (await this.#repository.isKept(sha))
  }

  /**
   * Sees to it that the commit and its files are on disk. Concurrent calls for one commit share one fetch. Throws ReconcileError
   * `GitOperationFailed`.
   */
  async fetchCommit(want: WantedCommit, signal: AbortSignal): Promise<Lease> {
    this.touch()
    const lease = this.#lease(want.sha)
    try {
      if (!(await this.has(want.sha))) {
        await this.#fetches.run(want.sha, signal, (shared) =>
          this.#exclusively(shared, (f) => this.#ensure(want, f, shared)),
        )
      }
      return lease
    } catch (err) {
      lease.release()
      throw signal.aborted ? aborted(this.remote.url, signal) : err
    }
  }

  /** Whether `sha` is `tip.sha` or one of its ancestors; `tip.ref` is where the server has the tip. */
  async contains(tip: WantedCommit & { ref: string }, sha: string, signal: AbortSignal): Promise<boolean> {
    this.touch()
    const key = `${sha} ${tip.sha}`
    if (sha === tip.sha || this.#ancestors.has(key)) return true
    try {
      const found = await this.#exclusively(signal, (fetcher) =>
        this.#limited(key, () => fetcher.searchHistory(sha, tip.ref)),
      )
      if (this.#ancestors.size > 1000) this.#ancestors.clear()
      if (found) this.#ancestors.add(key)
      return found
    } catch (err) {
      throw signal.aborted ? aborted(this.remote.url, signal) : err
    }
  }

  /** Deletes all of it. It may be used again afterwards. */
  async remove(signal: AbortSignal): Promise<void> {
    await this.#exclusively(signal, async () => {
      const aside = `${this.#options.folder}.removed`
      await rename(this.#options.folder, aside)
      await rm(aside, { recursive: true, force: true })
    })
  }

  #lease(sha: string): Lease {
    this.#leases.set(sha, (this.#leases.get(sha) ?? 0) + 1)
    let held = true
    return {
      repository: this.#repository,
      release: () => {
        if (!held) return
        held = false
        const others = this.#leases.get(sha)! - 1
        if (others > 0) this.#leases.set(sha, others)
        else this.#leases.delete(sha)
      },
      reportDamage: () => (this.#damaged = true),
    }
  }

  /** Alone in this process, and alone among the processes that share the folder. */
  async #exclusively<R>(signal: AbortSignal, work: (fetcher: Fetcher) => Promise<R>): Promise<R> {
    const { folder, home, maxBytes, warn } = this.#options
    return await this.#mutex.run(signal, async () => {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const lock = await lockFolder(folder, signal)
      try {
        await writeFile(join(folder, 'url'), `${this.remote.url}\n`)
        await removeLeftovers(folder)
        const onStart = lock.recordGroup
        const repositories = { repository: this.#repository, history: this.#history }
        return await work(new Fetcher({ ...repositories, remote: this.remote, home, maxBytes, signal, onStart, warn }))
      } finally {
        await lock.release()
      }
    })
  }

  async #ensure(want: WantedCommit, fetcher: Fetcher, signal: AbortSignal): Promise<void> {
    if (this.#damaged) {
      this.#options.warn('a damaged mirror is made anew')
      await this.#repository.remove()
      this.#damaged = false
    }
    if (await this.has(want.sha)) return
    await this.#limited(want.sha, () => fetcher.fetchCommit(want))
    await this.#tidy(signal)
  }

  /** Each attempt at what is too large costs as many bytes as the limit allows: the next one waits. */
  async #limited<R>(key: string, work: () => Promise<R>): Promise<R> {
    const known = this.#tooLarge.get(key)
    if (known && known.untilMs > performance.now()) throw known.error
    try {
      return await work()
    } catch (error) {
      if (this.#tooLarge.size > 1000) this.#tooLarge.clear()
      if (error instanceof TooLargeError) this.#tooLarge.set(key, { error, untilMs: performance.now() + refusalMs })
      throw error
    }
  }

  async #tidy(signal: AbortSignal): Promise<void> {
    try {
      await this.#repository.dropOld(this.#options.maxCommits, (sha) => this.#leases.has(sha))
      await this.#repository.compact(maxPacks, signal)
    } catch (err) {
      signal.throwIfAborted()
      this.#options.warn(`mirror not compacted: ${messageOf(err)}`) // the commit is there, which is what was asked for
    }
  }
}

/** What processes that died meanwhile were about to delete or to write. */
async function removeLeftovers(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.removed') || name.startsWith('lock.'))
  for (const name of names) {
    const path = join(folder, name)
    const changedMs = await stat(path).then(
      (s) => s.mtimeMs,
      () => Date.now(),
    ) // gone by itself
    if (Date.now() - changedMs > leftoverMs) await rm(path, { recursive: true, force: true })
  }
}
