import { rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { Archiver, type Publish } from './archiver.ts'
import { Blobs } from './blobs.ts'
import { ensureFolder, failingAs, syncFolder } from './durable.ts'
import { archiveError } from '../archive/entry-path.ts'
import type { Entries } from '../entry.ts'
import { GarbageCollector } from './garbage.ts'
import { Histories } from './histories.ts'
import { findEntry, toArtifact, type History, type HistoryQuery } from './history.ts'
import { storageId } from './identity.ts'
import { KeyedMutex } from './locks.ts'
import { Orphans } from './orphans.ts'
import { checkFileName, checkFolder, isFolder, latestName, ownFolder, parsePath } from './paths.ts'
import { Patrol } from './patrol.ts'
import { Publisher } from './publish.ts'
import type { OpenedArtifact, Storage, StorageOptions, StoreOptions, StoreResult, Swept } from './storage.ts'
import type { StoredArtifact } from '../stored.ts'
import { Temps } from './temps.ts'
import { Verifier, type Integrity } from './verifier.ts'

const maxRevisionLength = 4096

/** Opens the storage in a folder and clears away what dead processes of this host have left. */
export async function openStorage(options: StorageOptions): Promise<Storage> {
  const root = resolve(options.root)
  const temps = new Temps(join(root, ownFolder, 'tmp'))
  return failingAs('DirectoryCreationFailed', 'failed to open the artifact storage', async () => {
    await ensureFolder(root, `${ownFolder}/tmp`)
    const id = await storageId(root, temps)
    await temps.sweep()
    return new LocalStorage(root, id, temps, options)
  })
}

/** Keeps everything in one folder of a file system, which several processes may share. */
class LocalStorage implements Storage {
  readonly id: string
  readonly #root: string
  readonly #temps: Temps
  readonly #verifier = new Verifier()
  /** One writer per folder at a time. */
  readonly #locks = new KeyedMutex()
  readonly #histories: Histories
  readonly #blobs: Blobs
  readonly #publisher: Publisher
  readonly #garbage: GarbageCollector
  readonly #orphans: Orphans
  readonly #patrol: Patrol
  readonly #archiver: Archiver

  constructor(root: string, id: string, temps: Temps, options: StorageOptions) {
    const { retentionTtlMs: ttlMs = 60_000, retentionRecords: records = 2, now = Date.now } = options
    const monotonic = options.monotonic ?? options.now ?? (() => performance.now())
    const verifier = this.#verifier
    this.id = id
    this.#root = root
    this.#temps = temps
    const histories = new Histories(root, temps, options.log)
    const blobs = new Blobs({ root, temps, verifier, namesOf: (digest) => this.#namesOf(digest) })
    this.#histories = histories
    this.#blobs = blobs
    this.#archiver = new Archiver({ root, temps, verifier, blobs, rules: options })
    this.#publisher = new Publisher({ root, temps, verifier, histories, blobs, now })
    this.#garbage = new GarbageCollector({ root, histories, records, ttlMs, now, monotonic })
    this.#orphans = new Orphans({ root, temps, histories, locks: this.#locks, ttlMs, monotonic })
    this.#patrol = new Patrol({ root, histories, verifier, monotonic })
  }

  async store(folder: string, revision: string, entries: Entries, options: StoreOptions): Promise<StoreResult> {
    checkFolder(folder)
    checkFileName(options.fileName)
    if (revision === '' || revision.length > maxRevisionLength) throw archiveError('the revision is empty or too long')
    return failingAs('ArchiveOperationFailed', 'unable to archive artifact to storage', async () => {
      try {
        return await this.#store(folder, revision, entries, options)
      } catch (err) {
        options.signal?.throwIfAborted()
        throw err
      }
    })
  }

  async #store(folder: string, revision: string, entries: Entries, options: StoreOptions): Promise<StoreResult> {
    const { fileName, named, metadata, signal } = options
    const publish: Publish = (archive) =>
      this.#locks.run(folder, async () => {
        signal?.throwIfAborted() // by now another process may be the one to write
        const published = await this.#publisher.publish(folder, archive, { revision, fileName, named, metadata })
        if (published?.superseded !== undefined) this.#garbage.superseded(published.superseded)
        if (published) this.#patrol.watch(folder, published.artifact.path, published.artifact.digest)
        return published
      })
    const { artifact, changed, droppedSymlinks } = await this.#archiver.archive(entries, options, publish)
    return { artifact, changed, droppedSymlinks }
  }

  async check({ path, digest }: Pick<StoredArtifact, 'path' | 'digest'>): Promise<Integrity> {
    const parsed = parsePath(path)
    if (!parsed) return 'missing'
    return failingAs('ReadOperationFailed', 'failed to verify the stored artifact', async () => {
      const history = await this.#historyOf(parsed.folder)
      const entry = history.findLast(({ file }) => file === parsed.file)
      if (!entry) return 'missing'
      return entry.digest === digest ? this.#verifier.check(join(this.#root, path), digest) : 'damaged'
    })
  }

  async look(path: string): Promise<StoredArtifact | 'missing' | 'damaged' | undefined> {
    const artifact = await this.#recordOf(path)
    if (!artifact) return undefined
    const integrity = await this.#verifier.check(join(this.#root, artifact.path), artifact.digest)
    return integrity === 'intact' ? artifact : integrity
  }

  async open(path: string): Promise<OpenedArtifact | 'missing' | 'damaged' | undefined> {
    const artifact = await this.#recordOf(path)
    if (!artifact) return undefined
    const opened = await this.#verifier.open(join(this.#root, artifact.path), artifact.digest)
    return typeof opened === 'string' ? opened : { artifact, ...opened }
  }

  /** What the log says of a path. */
  async #recordOf(path: string): Promise<StoredArtifact | undefined> {
    const parsed = parsePath(path)
    if (!parsed) return undefined
    const history = await this.#historyOf(parsed.folder)
    const entry = parsed.file === latestName ? history.at(-1) : history.findLast(({ file }) => file === parsed.file)
    return entry && toArtifact(parsed.folder, entry)
  }

  async find(folder: string, query: HistoryQuery): Promise<StoredArtifact | undefined> {
    if (!isFolder(folder)) return undefined
    const entry = findEntry(await this.#historyOf(folder), query)
    if (!entry) return undefined
    const artifact = toArtifact(folder, entry)
    const state = await this.#verifier.check(join(this.#root, artifact.path), artifact.digest)
    return state === 'missing' ? undefined : artifact
  }

  async discard(path: string): Promise<void> {
    const parsed = parsePath(path)
    if (!parsed) return
    const discard = async (): Promise<void> => {
      const entry = (await this.#histories.read(parsed.folder)).findLast(({ file }) => file === parsed.file)
      const file = join(this.#root, path)
      // It may have been repaired since it was found damaged.
      if (!entry || (await this.#verifier.check(file, entry.digest)) !== 'damaged') return
      await rm(file, { force: true, recursive: true })
      await syncFolder(join(this.#root, parsed.folder))
    }
    const reason = 'ArchiveOperationFailed'
    await failingAs(reason, 'failed to remove a damaged artifact', () => this.#locks.run(parsed.folder, discard))
  }

  async collectGarbage(folder: string, currentPath?: string): Promise<string[]> {
    checkFolder(folder)
    return failingAs('GarbageCollectionFailed', 'failed to remove superseded artifacts', () =>
      this.#locks.run(folder, () => this.#garbage.collect(folder, currentPath)),
    )
  }

  async sweep(kindFolder: string, isLive: (folder: string) => boolean): Promise<Swept> {
    checkFolder(`${kindFolder}/namespace/name`)
    await storageId(this.#root, this.#temps, this.id) // put back if somebody has emptied the storage
    const folders = await this.#orphans.sweep(kindFolder, isLive)
    for (const folder of folders) this.#patrol.forget(folder)
    return { folders, blobs: await this.#blobs.sweep(), temps: await this.#temps.sweep() }
  }

  patrol(): Promise<string[]> {
    return this.#patrol.run()
  }

  async #historyOf(folder: string): Promise<History> {
    const history = await this.#histories.read(folder)
    const current = history.at(-1)
    if (current) this.#patrol.watch(folder, `${folder}/${current.file}`, current.digest)
    return history
  }

  async #namesOf(digest: string): Promise<string[]> {
    const names = new Set<string>()
    for await (const folder of this.#histories.folders()) {
      for (const entry of await this.#histories.read(folder)) {
        if (entry.digest === digest) names.add(join(this.#root, folder, entry.file))
      }
    }
    return [...names]
  }
}
