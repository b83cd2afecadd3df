import { createHash } from 'node:crypto'
import type { GitHome } from '../environment.ts'
import { gitFailure } from '../failure.ts'
import { DamagedError, explained, fetchInto, MovedError, RefusedError, TooLargeError } from './fetch.ts'
import type { FetchRequest } from './fetch.ts'
import { GitError, runGit } from '../git.ts'
import { knowledgeLifetimeMs, type Remote } from '../protocol/remote.ts'
import type { BareRepository } from './repository.ts'

/** A commit, and the ref at which the server has said it is. */
export interface WantedCommit {
  sha: string
  ref?: string | undefined
  /** True: not all of its files are needed, and where the server can leave them out they are not fetched. */
  partial?: boolean | undefined
}

export interface FetcherOptions {
  repository: BareRepository
  /** For commits of which some files are enough. */
  partial: BareRepository
  history: BareRepository
  remote: Remote
  home: GitHome
  maxBytes: number
  signal: AbortSignal
  onStart: (group: number) => void
  warn: (message: string) => void
}

const allHistory = 2_147_483_647
const heads = 'refs/heads/*'

/** The ways to get a commit out of a server, the cheapest first. Needs the mirror's lock. */
export class Fetcher {
  readonly #options: FetcherOptions

  constructor(options: FetcherOptions) {
    this.#options = options
  }

  /** Fetches the commit and its files: by its id, else from its ref, else by searching the history of its ref or of all branches. */
  async fetchCommit({ sha, ref }: WantedCommit): Promise<void> {
    const { repository } = this.#options
    await this.#healing(repository, async () => {
      const keep = [repository.keeping(sha, sha)]
      if (await this.#accepted(() => this.#fetch(repository, { refspecs: keep, depth: 1 }))) return
      const found =
        (ref !== undefined && (await this.#fetchTip(ref, sha))) || (await this.#fetchWithHistory(sha, ref ?? heads))
      if (!found) throw gitFailure(this.#options.remote.url, `commit '${sha}' not found${ref ? ` in '${ref}'` : ''}`)
      await repository.keep(sha, this.#options.signal)
    })
  }

  /** Fetches the commit and its folders; of its files none. Returns false where the server cannot do that. */
  async fetchFolders({ sha }: WantedCommit): Promise<boolean> {
    if (!(await this.#canFilter())) return false
    return await this.#healing(this.#options.partial, () => this.#accepted(() => this.#fetchFolders(sha)))
  }

  /** Fetches the files at and below the paths, and the commit and its folders where they are missing. Returns false where the server refuses. */
  async fetchFiles({ sha }: WantedCommit, paths: readonly string[]): Promise<boolean> {
    const { partial, remote } = this.#options
    return await this.#healing(partial, async () => {
      if (!(await partial.isKept(sha))) await this.#fetchFolders(sha)
      const objects = await this.#missing(sha, paths)
      if (objects.length === 0) return true
      if (!(await this.#accepted(() => this.#fetch(partial, { objects, filter: 'blob:none' })))) return false
      const left = await this.#missing(sha, paths)
      if (left.length > 0) throw gitFailure(remote.url, `the server has not sent object ${left[0]}`)
      return true
    })
  }

  async #fetchFolders(sha: string): Promise<void> {
    const { partial } = this.#options
    await this.#fetch(partial, { refspecs: [partial.keeping(sha, sha)], depth: 1, filter: 'blob:none' })
  }

  async #missing(sha: string, paths: readonly string[]): Promise<string[]> {
    const { partial, remote, signal } = this.#options
    try {
      return await partial.missingFiles(sha, paths, signal)
    } catch (err) {
      throw explained(remote.url, err)
    }
  }

  async #canFilter(): Promise<boolean> {
    const { remote, signal } = this.#options
    await remote.greet(knowledgeLifetimeMs, signal)
    return remote.features?.filter === true
  }

  /** Whether the commit is part of the history of `ref` (or of any branch), asking for as little as the server allows. */
  async searchHistory(sha: string, ref: string = heads): Promise<boolean> {
    const { history, repository } = this.#options
    const target = (await this.#canFilter()) ? history : repository
    return await this.#healing(target, async () => {
      const shape = target === history ? { filter: 'tree:0' as const } : { depth: allHistory }
      await this.#fetch(target, { refspecs: [spec(ref)], ...shape })
      return await this.#isIn(target, sha, ref)
    })
  }

  /** An annotated tag's commit is not given by id by old servers, but comes with the tag. */
  async #fetchTip(ref: string, sha: string): Promise<boolean> {
    const { repository, signal } = this.#options
    const accepted = await this.#accepted(() => this.#fetch(repository, { refspecs: [spec(ref)], depth: 1 }))
    return accepted && (await repository.hasCommit(sha, signal))
  }

  async #fetchWithHistory(sha: string, ref: string): Promise<boolean> {
    const { repository, remote, signal } = this.#options
    // A commit that does not exist must not cost a full clone on every attempt.
    if (remote.features?.filter && !(await this.searchHistory(sha, ref))) return false
    await this.#fetch(repository, { refspecs: [spec(ref)], depth: allHistory })
    return await repository.hasCommit(sha, signal)
  }

  async #isIn(target: BareRepository, sha: string, ref: string): Promise<boolean> {
    const { signal } = this.#options
    if (!(await target.hasCommit(sha, signal))) return false
    if (ref === heads) return true
    const args = ['--git-dir', target.dir, 'merge-base', '--is-ancestor', '--end-of-options', sha, localName(ref)]
    try {
      await runGit(args, { env: target.env, signal })
      return true
    } catch (err) {
      if (err instanceof GitError && err.exitCode === 1) return false
      throw err
    }
  }

  async #fetch(
    repository: BareRepository,
    shape: Pick<FetchRequest, 'refspecs' | 'depth' | 'filter' | 'objects'>,
  ): Promise<void> {
    const { remote, home, maxBytes, signal, onStart } = this.#options
    const request = { repository, ...shape, remote, home, maxBytes, signal, onStart }
    // Git follows no redirects here; where they lead must be known.
    await remote.greet(knowledgeLifetimeMs, signal)
    try {
      await fetchInto(request)
    } catch (err) {
      if (!(err instanceof MovedError)) throw err
      remote.forget()
      await remote.greet(knowledgeLifetimeMs, signal)
      await fetchInto(request)
    }
  }

  /** Returns false where the server refuses. */
  async #accepted(fetch: () => Promise<void>): Promise<boolean> {
    try {
      await fetch()
      return true
    } catch (err) {
      if (err instanceof RefusedError) return false
      throw err
    }
  }

  /** What is damaged, or has grown too large over time, is deleted and fetched again once. A failure leaves nothing half-done. */
  async #healing<R>(repository: BareRepository, work: () => Promise<R>): Promise<R> {
    const { signal, warn } = this.#options
    let fresh = !(await repository.exists())
    for (;;) {
      await repository.prepare(signal)
      try {
        return await work()
      } catch (err) {
        const again = !fresh && (err instanceof DamagedError || err instanceof TooLargeError)
        if (fresh || again) await repository.remove()
        else await repository.removeRubbish()
        if (!again) throw err
        warn(`mirror is made anew: ${err.message}`)
        fresh = true
      }
    }
  }
}

function spec(ref: string): string {
  return `+${ref}:${localName(ref)}`
}

/** Names that others chose are not used as names of files here. */
function localName(ref: string): string {
  if (ref === heads) return 'refs/openflux/heads/*'
  return `refs/openflux/tip/${createHash('sha256').update(ref).digest('hex').slice(0, 16)}`
}
