import { rename, rm, rmdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { codeOf } from './durable.ts'
import type { Histories } from './histories.ts'
import type { KeyedMutex } from './locks.ts'
import type { Temps } from './temps.ts'

/** What the sweep shares with the rest of the storage. */
export interface OrphansOptions {
  root: string
  temps: Temps
  histories: Histories
  /** Held per folder by whoever changes it. */
  locks: KeyedMutex
  ttlMs: number
  /** Ms of a clock that is never set. */
  monotonic: () => number
}

/** Removes the folders of objects that no longer exist, once they have been without an object for the whole TTL. */
export class Orphans {
  readonly #options: OrphansOptions
  readonly #since = new Map<string, number>()

  constructor(options: OrphansOptions) {
    this.#options = options
  }

  /** Looks at all folders of a kind; gives those removed. */
  async sweep(kindFolder: string, isLive: (folder: string) => boolean): Promise<string[]> {
    const { histories, locks, monotonic, ttlMs } = this.#options
    const removed: string[] = []
    const seen = new Set<string>()
    for await (const folder of histories.folders(kindFolder)) {
      seen.add(folder)
      if (isLive(folder)) {
        this.#since.delete(folder)
        continue
      }
      const since = this.#since.get(folder) ?? monotonic()
      this.#since.set(folder, since)
      if (monotonic() - since <= ttlMs) continue
      await locks.run(folder, async () => {
        if (isLive(folder)) return // made again while we waited
        await this.#remove(folder)
        removed.push(folder)
      })
    }
    for (const folder of this.#since.keys()) {
      if (folder.startsWith(`${kindFolder}/`) && (!seen.has(folder) || removed.includes(folder)))
        this.#since.delete(folder)
    }
    return removed
  }

  async #remove(folder: string): Promise<void> {
    const { root, temps, histories } = this.#options
    const path = join(root, folder)
    const temp = temps.path()
    await rename(path, temp) // at once: half a folder would be one whose log names files that are gone
    histories.forget(folder)
    await rm(temp, { recursive: true, force: true })
    await rmdir(dirname(path)).catch((err: unknown) => {
      if (!['ENOTEMPTY', 'EEXIST', 'ENOENT'].includes(codeOf(err))) throw err
    })
  }
}
