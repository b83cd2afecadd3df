import { lstat, readlink, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Blobs } from './blobs.ts'
import { parseDigest } from '../digest.ts'
import { codeOf, ensureFolder, refusesLinks, replace, storageError, syncFolder } from './durable.ts'
import type { Histories } from './histories.ts'
import { append, formatHistory, toArtifact, type History } from './history.ts'
import { archiveSuffix, latestName } from './paths.ts'
import type { StoredArtifact } from '../stored.ts'
import type { Temps } from './temps.ts'
import type { Verifier } from './verifier.ts'

/** A complete archive. */
export interface FinishedArchive {
  /** Where it is, on disk for good but under no name of its own yet; undefined where there should be a blob of the digest. */
  temp: string | undefined
  digest: string
  sizeBytes: number
}

/** What it is to be known as. */
export interface Publication {
  revision: string
  /** Less the suffix. */
  fileName: string
  metadata: Record<string, string> | undefined
  /** What others still take a path of the folder for. */
  named: { path: string; digest: string } | undefined
}

/** What publishing shares with the rest of the storage. */
export interface PublisherOptions {
  root: string
  temps: Temps
  verifier: Verifier
  histories: Histories
  blobs: Blobs
  now: () => number
}

/** What has been published. */
export interface Published {
  artifact: StoredArtifact
  changed: boolean
  /** The path that was current before. */
  superseded: string | undefined
}

/** Makes a finished archive the current one of a folder. To be called under the folder's lock. */
export class Publisher {
  readonly #options: PublisherOptions

  constructor(options: PublisherOptions) {
    this.#options = options
  }

  /** The file first, then the log that names it, then the link for people; all durable at the end. Undefined, and no effect, where the bytes are not there. */
  async publish(
    folder: string,
    { temp, digest, sizeBytes }: FinishedArchive,
    { revision, fileName, named, metadata }: Publication,
  ): Promise<Published | undefined> {
    const { root, histories, now } = this.#options
    const path = await ensureFolder(root, folder)
    const history = await histories.read(folder)
    const file = await this.#freeName(path, history, fileName, digest, named)
    if (!(await this.#provide(join(path, file), digest, temp))) return undefined

    const before = history.at(-1)
    const written = append(history, { file, revision, digest, size: sizeBytes }, metadata, now())
    if (formatHistory(written) !== formatHistory(history)) await histories.write(folder, written)
    await this.#linkLatest(path, file)
    await syncFolder(path)
    const changed = before?.file !== file || before.digest !== digest
    return {
      artifact: toArtifact(folder, written.at(-1)!),
      changed,
      superseded: changed && before ? `${folder}/${before.file}` : undefined,
    }
  }

  async #provide(file: string, digest: string, temp: string | undefined): Promise<boolean> {
    const { verifier, blobs } = this.#options
    if ((await verifier.check(file, digest)) === 'intact') return true
    if (temp === undefined) return blobs.share(digest, file)
    await blobs.place(temp, digest, file)
    return true
  }

  /** The first name that no other bytes of this object have had: a name that was published once must never stand for anything else. */
  async #freeName(
    path: string,
    history: History,
    fileName: string,
    digest: string,
    named: Publication['named'],
  ): Promise<string> {
    const { hex } = parseDigest(digest)
    const names = ['', `-${hex.slice(0, 8)}`, `-${hex.slice(0, 16)}`].map(
      (suffix) => `${fileName}${suffix}${archiveSuffix}`,
    )
    for (const name of names) {
      if (named && named.digest !== digest && named.path.endsWith(`/${name}`)) continue
      const known = history.findLast((entry) => entry.file === name)
      if (known ? known.digest === digest : await this.#isFree(join(path, name), digest)) return name
    }
    return `${fileName}-${hex}${archiveSuffix}`
  }

  /** Whether a file that is in no log may be this one: the log may have been lost, and the file's name be in use still. */
  async #isFree(file: string, digest: string): Promise<boolean> {
    const found = await lstat(file).catch((err: unknown) => {
      if (codeOf(err) === 'ENOENT') return undefined
      throw err
    })
    return !found?.isFile() || (await this.#options.verifier.check(file, digest)) === 'intact'
  }

  async #linkLatest(path: string, file: string): Promise<void> {
    const link = join(path, latestName)
    try {
      if ((await readlink(link).catch(() => undefined)) === file) return // no link, or no such link: it is made below
      const temp = this.#options.temps.path()
      await symlink(file, temp)
      await replace(temp, link)
    } catch (err) {
      // The server does not need it: a file system without links only costs the convenience.
      if (!refusesLinks(err))
        throw storageError(err, 'SymlinkUpdateFailed', 'failed to update the link to the latest artifact')
    }
  }
}
