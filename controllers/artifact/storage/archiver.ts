import { hash } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { rm, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { writeArchive, type ArchiveResult } from '../archive/archive.ts'
import { archiveError } from '../archive/entry-path.ts'
import { gzipSingle } from '../archive/gzip.ts'
import { Throttle } from '../../runtime/throttle.ts'
import { gzipMembers, type MemberCache } from '../archive/member-gzip.ts'
import type { Blobs } from './blobs.ts'
import { writerOf } from './durable.ts'
import type { Entries } from '../entry.ts'
import { MemberStore } from './member-store.ts'
import type { FinishedArchive, Published } from './publish.ts'
import { type KnownArchive, SharedArchives } from './shared-archives.ts'
import type { StorageOptions, StoreOptions } from './storage.ts'
import type { Temps } from './temps.ts'
import type { Verifier } from './verifier.ts'

/** What making archives shares with the rest of the storage, and the rules for all of them. */
export interface ArchiverOptions {
  root: string
  temps: Temps
  verifier: Verifier
  blobs: Blobs
  rules: Pick<StorageOptions, 'digestAlgorithm' | 'gzip' | 'limits'>
}

/** What is published, or undefined where no bytes of the digest are there. */
export type Publish = (archive: FinishedArchive) => Promise<Published | undefined>

/** What has been published of an archive, whoever made it. */
export interface Archived extends Published {
  droppedSymlinks: number
}

/** More at a time would take more memory and no less time. */
const builds = new Throttle(availableParallelism())

type Rules = Pick<StoreOptions, 'ignore' | 'contentKey' | 'symlinks' | 'signal'>

/** Makes archives out of entries, taking from those that were made before what is the same: all of it, or members of it. */
export class Archiver {
  readonly #options: ArchiverOptions
  readonly #members = new MemberStore()
  readonly #shared = new SharedArchives()

  constructor(options: ArchiverOptions) {
    this.#options = options
  }

  /** Has the archive of these entries published. Throws what reading, writing and `publish` throw. */
  async archive(entries: Entries, rules: Rules, publish: Publish): Promise<Archived> {
    const { contentKey, ignore, symlinks, signal } = rules
    const build = (): Promise<{ result: Archived; archive: KnownArchive }> =>
      builds.run(signal, () => this.#build(entries, rules, publish))
    if (contentKey === undefined) return (await build()).result
    const reuse = async (known: KnownArchive): Promise<Archived | undefined> => {
      const published = await publish({ temp: undefined, ...known })
      return published && { ...published, droppedSymlinks: known.droppedSymlinks }
    }
    // All else that an archive depends on is the same for all of them.
    const key = hash('sha256', JSON.stringify([contentKey, ignore ?? null, symlinks === 'keep']), 'base64')
    return this.#shared.run(key, { signal, reuse, build })
  }

  async #build(entries: Entries, rules: Rules, publish: Publish): Promise<{ result: Archived; archive: KnownArchive }> {
    const { root, temps, blobs } = this.#options
    const { path: temp, handle } = await temps.create()
    try {
      const members = this.#members.begin()
      const { digest, sizeBytes, droppedSymlinks } = await this.#write(handle, entries, rules, members)
      const published = await publish({ temp, digest, sizeBytes })
      if (!published) throw archiveError('the archive is not where it was written')
      members.keep([blobs.pathOf(digest), join(root, published.artifact.path)])
      return { result: { ...published, droppedSymlinks }, archive: { digest, sizeBytes, droppedSymlinks } }
    } finally {
      await handle.close()
      await rm(temp, { force: true })
    }
  }

  async #write(
    handle: FileHandle,
    entries: Entries,
    { ignore, symlinks, signal }: Rules,
    members: MemberCache,
  ): Promise<ArchiveResult> {
    const { rules, verifier } = this.#options
    const { limits, digestAlgorithm, gzip } = rules
    const compress = gzip === 'single' ? gzipSingle : gzipMembers(members)
    const out = writerOf(handle)
    const result = await writeArchive(entries, out, { ignore, limits, digestAlgorithm, symlinks, compress, signal })
    await handle.sync()
    verifier.trust(await handle.stat({ bigint: true }), result.digest)
    return result
  }
}
