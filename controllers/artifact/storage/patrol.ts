import { join } from 'node:path'
import type { Histories } from './histories.ts'
import { Semaphore } from './locks.ts'
import type { Verifier } from './verifier.ts'

const concurrency = 16
/** How long a folder is reported that has vanished; an object that lives has had it rebuilt long before. */
const reportMs = 60 * 60 * 1000

interface Watched {
  path: string
  digest: string
  missingSinceMs?: number
}

/** What the patrol shares with the rest of the storage. */
export interface PatrolOptions {
  root: string
  histories: Histories
  verifier: Verifier
  /** Ms of a clock that is never set. */
  monotonic: () => number
}

/** Watches the current file of every folder that this process has seen one of. What it has seen it remembers, even if the whole storage is emptied. */
export class Patrol {
  readonly #options: PatrolOptions
  readonly #watched = new Map<string, Watched>()

  constructor(options: PatrolOptions) {
    this.#options = options
  }

  watch(folder: string, path: string, digest: string): void {
    this.#watched.set(folder, { path, digest })
  }

  /** The folder was removed on purpose. */
  forget(folder: string): void {
    this.#watched.delete(folder)
  }

  /** The paths of the current files that are missing or damaged. */
  async run(): Promise<string[]> {
    const pool = new Semaphore(concurrency)
    const broken: string[] = []
    const folders = [...this.#watched.keys()]
    await Promise.all(
      folders.map((folder) =>
        pool.run(async () => {
          const path = await this.#look(folder)
          if (path !== undefined) broken.push(path)
        }),
      ),
    )
    return broken
  }

  async #look(folder: string): Promise<string | undefined> {
    const { root, histories, verifier, monotonic } = this.#options
    const current = (await histories.read(folder)).at(-1)
    if (current) this.watch(folder, `${folder}/${current.file}`, current.digest)
    const watched = this.#watched.get(folder)
    if (!watched) return undefined
    if (current && (await verifier.check(join(root, watched.path), watched.digest, Infinity)) === 'intact')
      return undefined
    watched.missingSinceMs ??= monotonic()
    if (!current && monotonic() - watched.missingSinceMs > reportMs) this.forget(folder)
    return watched.path
  }
}
