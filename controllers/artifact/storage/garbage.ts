import { lstat, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { codeOf, syncFolder } from './durable.ts'
import type { Histories } from './histories.ts'
import type { HistoryEntry } from './history.ts'
import { latestName, parsePath } from './paths.ts'
import { retire } from './retention.ts'

/** The rule of retention, and the clocks it goes by. */
export interface GarbageOptions {
  root: string
  histories: Histories
  records: number
  ttlMs: number
  now: () => number
  /** Ms of a clock that is never set. */
  monotonic: () => number
}

/** Removes the superseded files of one folder. To be called under the folder's lock. */
export class GarbageCollector {
  readonly #options: GarbageOptions
  /** When this process superseded a path: a system clock that is set forward must not make a file look old. */
  readonly #superseded = new Map<string, number>()

  constructor(options: GarbageOptions) {
    this.#options = options
  }

  superseded(path: string): void {
    this.#superseded.set(path, this.#options.monotonic())
  }

  /** Gives the paths removed. */
  async collect(folder: string, currentPath: string | undefined): Promise<string[]> {
    const { root, histories, records } = this.#options
    const history = await histories.read(folder)
    const keep = currentPath === undefined ? undefined : parsePath(currentPath)?.file
    const isExpired = (entry: HistoryEntry): boolean => this.#isExpired(folder, entry)
    const retired = retire(history, { records, isExpired, keep })
    const known = new Set(history.map((entry) => entry.file))
    const files = [...retired.files, ...(await this.#unknownFiles(folder, known, keep))]
    for (const file of files) {
      await rm(join(root, folder, file), { force: true, recursive: true })
      this.#superseded.delete(`${folder}/${file}`)
    }
    if (retired.history.length < history.length) await histories.write(folder, retired.history)
    if (files.length > 0) await syncFolder(join(root, folder))
    return files.map((file) => `${folder}/${file}`)
  }

  #isExpired(folder: string, { file, until }: HistoryEntry): boolean {
    const { ttlMs, now, monotonic } = this.#options
    if (until === undefined) return false
    const sinceMs = this.#superseded.get(`${folder}/${file}`)
    return now() - Date.parse(until) > ttlMs && (sinceMs === undefined || monotonic() - sinceMs > ttlMs)
  }

  /** Files in no log, which a crash has left. One that was named just now may be in the log the next moment. */
  async #unknownFiles(folder: string, known: Set<string>, keep: string | undefined): Promise<string[]> {
    const { root, now, ttlMs } = this.#options
    const names = await readdir(join(root, folder)).catch((err: unknown) => {
      if (codeOf(err) === 'ENOENT') return []
      throw err
    })
    const unknown: string[] = []
    for (const name of names) {
      if (known.has(name) || name === keep || name === latestName || !parsePath(`${folder}/${name}`)) continue
      const stat = await lstat(join(root, folder, name))
      if (now() - Math.max(stat.mtimeMs, stat.ctimeMs) > ttlMs) unknown.push(name)
    }
    return unknown
  }
}
