import { constants, type BigIntStats } from 'node:fs'
import { lstat, open, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Logger } from 'pino'
import { codeOf, replace } from './durable.ts'
import { formatHistory, parseHistory, type History, type HistoryEntry } from './history.ts'
import { isFolder } from './paths.ts'
import type { Temps } from './temps.ts'

/** A name that is never served. */
const historyName = '.history.json'
/** About 200,000 entries; more would have to be made by somebody else. */
const maxBytes = 64 * 2 ** 20

interface Cached {
  stat: BigIntStats
  history: History
}

/** The logs on disk, read again whenever another process has written one. */
export class Histories {
  readonly #root: string
  readonly #temps: Temps
  readonly #log: Logger | undefined
  readonly #cache = new Map<string, Cached>()

  constructor(root: string, temps: Temps, log: Logger | undefined) {
    this.#root = root
    this.#temps = temps
    this.#log = log
  }

  /** The log of a folder; empty where there is none or it is damaged. The files it would have named are then rebuilt. */
  async read(folder: string): Promise<History> {
    const file = this.#fileOf(folder)
    const stat = await lstat(file, { bigint: true }).catch((err: unknown) => {
      if (['ENOENT', 'ENOTDIR'].includes(codeOf(err))) return undefined
      throw err
    })
    const cached = this.#cache.get(folder)
    if (cached && stat && isSame(cached.stat, stat)) return cached.history
    this.#cache.delete(folder)
    if (!stat) return []
    const loaded = await this.#load(folder, file).catch((err: unknown) => {
      // Too many open files, say: that tells nothing about the log.
      if (!['', 'ENOENT', 'ELOOP', 'EISDIR', 'EACCES'].includes(codeOf(err))) throw err
      this.#log?.error({ folder, error: err }, 'damaged history of artifacts ignored')
      return { stat, history: [] }
    })
    this.#cache.set(folder, loaded)
    return loaded.history
  }

  async #load(folder: string, file: string): Promise<Cached> {
    const handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    try {
      const stat = await handle.stat({ bigint: true })
      if (!stat.isFile() || stat.size > maxBytes) throw new Error('not a file of a sensible size')
      return { stat, history: parseHistory(folder, await handle.readFile('utf8')) }
    } finally {
      await handle.close()
    }
  }

  /** Replaces the log of a folder that exists. The caller makes the folder durable. */
  async write(folder: string, history: readonly HistoryEntry[]): Promise<void> {
    const file = this.#fileOf(folder)
    const temp = await this.#temps.create()
    try {
      await temp.handle.writeFile(formatHistory(history))
      await temp.handle.sync()
      await replace(temp.path, file)
      this.#cache.set(folder, { stat: await temp.handle.stat({ bigint: true }), history })
    } finally {
      await temp.handle.close()
      await rm(temp.path, { force: true })
    }
  }

  /** The folder is gone. */
  forget(folder: string): void {
    this.#cache.delete(folder)
  }

  /** All folders `<kind>/<namespace>/<name>` on disk, those of one kind if given. Links are not followed. */
  async *folders(kindFolder?: string): AsyncGenerator<string> {
    for (const kind of kindFolder === undefined ? await this.#subfolders('') : [kindFolder]) {
      for (const namespace of await this.#subfolders(kind)) {
        for (const name of await this.#subfolders(`${kind}/${namespace}`)) {
          const folder = `${kind}/${namespace}/${name}`
          if (isFolder(folder)) yield folder
        }
      }
    }
  }

  async #subfolders(relative: string): Promise<string[]> {
    try {
      const found = await readdir(join(this.#root, relative), { withFileTypes: true })
      return found.filter((each) => each.isDirectory() && !each.name.startsWith('.')).map((each) => each.name)
    } catch (err) {
      if (['ENOENT', 'ENOTDIR'].includes(codeOf(err))) return []
      throw err
    }
  }

  #fileOf(folder: string): string {
    return join(this.#root, folder, historyName)
  }
}

function isSame(a: BigIntStats, b: BigIntStats): boolean {
  return a.ino === b.ino && a.size === b.size && a.mtimeNs === b.mtimeNs && a.ctimeNs === b.ctimeNs
}
