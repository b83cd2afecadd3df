import type { BareRepository } from './repository.ts'

export interface ShelfOptions {
  /** True: it holds commits and folders, but only those files that somebody has needed. */
  partial: boolean
  /** Commits that stay when nobody reads them. */
  maxCommits: number
  /** More packs than this become one. */
  maxPacks: number
  warn: (message: string) => void
}

/** One repository of a mirror, with the commits that somebody may read out of it. */
export class Shelf {
  readonly repository: BareRepository
  readonly #options: ShelfOptions
  #damaged = false

  constructor(repository: BareRepository, options: ShelfOptions) {
    this.repository = repository
    this.#options = options
  }

  get partial(): boolean {
    return this.#options.partial
  }

  /** To be called when reading has failed: all of it is made anew before it is used again. */
  reportDamage(): void {
    this.#damaged = true
  }

  async has(sha: string): Promise<boolean> {
    return !this.#damaged && (await this.repository.isKept(sha))
  }

  /** Whether all files at and below the paths of a commit are there; false too where that cannot be told. */
  async hasFiles(sha: string, paths: readonly string[], signal: AbortSignal): Promise<boolean> {
    if (!this.partial) return true
    return await this.repository.missingFiles(sha, paths, signal).then(
      (missing) => missing.length === 0,
      () => false,
    )
  }

  /** Removes what has been found to be damaged. Needs the mirror's lock, as all that follows. */
  async heal(): Promise<void> {
    if (!this.#damaged) return
    this.#options.warn('a damaged mirror is made anew')
    await this.repository.remove()
    this.#damaged = false
  }

  /** Lets go of all but the commits used last and those in use. Returns whether it should be compacted. */
  async dropOld(inUse: (sha: string) => boolean): Promise<boolean> {
    await this.repository.dropOld(this.#options.maxCommits, inUse)
    return await this.#hasManyPacks()
  }

  /** Unless another one has just done it. */
  async compact(signal: AbortSignal): Promise<void> {
    if (await this.#hasManyPacks()) await this.repository.compact(signal)
  }

  async #hasManyPacks(): Promise<boolean> {
    return (await this.repository.packCount()) > this.#options.maxPacks
  }
}
