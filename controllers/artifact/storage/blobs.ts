import { link, lstat, readdir, rm } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { parseDigest } from '../digest.ts'
import { codeOf, ensureFolder, linkOver, refusesLinks, replace } from './durable.ts'
import { KeyedMutex } from './locks.ts'
import { makePacer } from '../archive/pace.ts'
import { ownFolder } from './paths.ts'
import type { Temps } from './temps.ts'
import type { Verifier } from './verifier.ts'

const blobsFolder = `${ownFolder}/blobs`
/** Tries at a blob that another process makes or removes at the same moment. */
const attempts = 5

/** What the blobs share with the rest of the storage. */
export interface BlobsOptions {
  root: string
  temps: Temps
  verifier: Verifier
  /** The full paths of all files of which the storage knows that they have this digest. */
  namesOf: (digest: string) => Promise<string[]>
}

/** The bytes of all archives, each once: `.openflux/blobs/<algorithm>/<2 hex>/<hex>`. The files of objects are further names of them (hard links). */
export class Blobs {
  readonly #options: BlobsOptions
  readonly #mutex = new KeyedMutex()

  constructor(options: BlobsOptions) {
    this.#options = options
  }

  /** Where the bytes of this digest are, if the storage has them and the file system has hard links. */
  pathOf(digest: string): string {
    const { algorithm, hex } = parseDigest(digest)
    return join(this.#options.root, blobsFolder, algorithm, hex.slice(0, 2), hex)
  }

  /** Makes `target` a name of the blob; false where there is no intact one, or no further name for it. */
  async share(digest: string, target: string): Promise<boolean> {
    return this.#mutex.run(digest, async () => {
      const blob = this.pathOf(digest)
      if ((await this.#options.verifier.check(blob, digest)) !== 'intact') return false
      try {
        await this.#link(blob, digest, target)
        return true
      } catch (err) {
        if (codeOf(err) === 'ENOENT' || refusesLinks(err)) return false
        throw err
      }
    })
  }

  /**
   * Gives `target` the bytes of the finished, durable file `temp`: as a name of the blob if there is one and it is intact, else of a new blob.
   * A damaged blob is replaced, under all its names. Where hard links are refused `temp` itself becomes `target`. Leaves `temp` or not.
   */
  async place(temp: string, digest: string, target: string): Promise<void> {
    await this.#mutex.run(digest, async () => {
      try {
        await this.#place(temp, digest, target)
      } catch (err) {
        if (!refusesLinks(err)) throw err
        await this.#move(temp, digest, target)
      }
    })
  }

  async #place(temp: string, digest: string, target: string): Promise<void> {
    const { root, verifier } = this.#options
    const blob = this.pathOf(digest)
    await ensureFolder(root, relative(root, dirname(blob)))
    for (let attempt = 1; ; attempt++) {
      const state = await verifier.check(blob, digest)
      try {
        if (state === 'intact') return await this.#link(blob, digest, target)
        if (state === 'missing') await link(temp, blob)
        else await this.#repair(temp, digest, blob)
        return await this.#move(temp, digest, target)
      } catch (err) {
        const raced =
          (state === 'intact' && codeOf(err) === 'ENOENT') || (state === 'missing' && codeOf(err) === 'EEXIST')
        if (!raced || attempt === attempts) throw err
      }
    }
  }

  /** Whoever shares the damaged bytes gets the new ones at once, rather than when it is looked at next. */
  async #repair(temp: string, digest: string, blob: string): Promise<void> {
    const { temps, namesOf } = this.#options
    await linkOver(temp, blob, temps.path())
    for (const name of await namesOf(digest)) {
      try {
        await linkOver(temp, name, temps.path())
      } catch (err) {
        // Its folder may just have been removed; and what stays damaged is found by its own check, never served.
        if (codeOf(err) === '') throw err
      }
    }
  }

  async #link(blob: string, digest: string, target: string): Promise<void> {
    const { temps, verifier } = this.#options
    await verifier.renaming(blob, target, digest, () => linkOver(blob, target, temps.path()))
  }

  async #move(temp: string, digest: string, target: string): Promise<void> {
    await this.#options.verifier.renaming(temp, target, digest, async () => {
      await replace(temp, target)
      // Both may have been names of one file already, which a rename leaves alone.
      await rm(temp, { force: true })
    })
  }

  /** Removes the blobs that have no other name; gives their number. */
  async sweep(): Promise<number> {
    const pace = makePacer()
    const root = join(this.#options.root, blobsFolder)
    let removed = 0
    for (const algorithm of await namesIn(root)) {
      for (const shard of await namesIn(join(root, algorithm))) {
        for (const hex of await namesIn(join(root, algorithm, shard))) {
          await pace()
          if (await this.#removeUnused(join(root, algorithm, shard, hex), `${algorithm}:${hex}`)) removed++
        }
      }
    }
    return removed
  }

  async #removeUnused(blob: string, digest: string): Promise<boolean> {
    if (!(await hasOneName(blob))) return false
    return this.#mutex.run(digest, async () => {
      // Another process may link it right now: it then has a name with the right bytes, only no longer shared.
      if (!(await hasOneName(blob))) return false
      await rm(blob, { force: true })
      return true
    })
  }
}

async function hasOneName(file: string): Promise<boolean> {
  try {
    return (await lstat(file)).nlink === 1
  } catch (err) {
    if (codeOf(err) === 'ENOENT') return false
    throw err
  }
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder)
  } catch (err) {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(err))) return []
    throw err
  }
}
