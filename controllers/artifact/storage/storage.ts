import type { FileHandle } from 'node:fs/promises'
import type { Logger } from 'pino'
import type { ArchiveLimits, SymlinkPolicy } from '../archive/archive-plan.ts'
import type { DigestAlgorithm } from '../digest.ts'
import type { Entries } from '../entry.ts'
import type { GzipForm } from '../archive/gzip.ts'
import type { HistoryQuery } from './history.ts'
import type { StoredArtifact } from '../stored.ts'
import type { Integrity } from './verifier.ts'

export type { HistoryQuery } from './history.ts'
export type { Integrity } from './verifier.ts'
export { openStorage } from './local-storage.ts'

/** Where a storage is, and its rules. */
export interface StorageOptions {
  /** The folder of everything; made if it is not there. */
  root: string
  /** How long a superseded file, or the folder of a deleted object, is kept at least. Defaults to 60 s. */
  retentionTtlMs?: number | undefined
  /** How many files of an object are kept at least, the current one included. Defaults to 2. */
  retentionRecords?: number | undefined
  /** Defaults to sha256. */
  digestAlgorithm?: DigestAlgorithm | undefined
  /** What is left out has its default. */
  limits?: Partial<ArchiveLimits> | undefined
  log?: Logger | undefined
  /** Ms since 1970. Defaults to the system's clock. */
  now?: (() => number) | undefined
  /** Ms of a clock that is never set. Defaults to `now` where that is given, else to the system's. */
  monotonic?: (() => number) | undefined
  /** How archives are compressed. Defaults to `members`. */
  gzip?: GzipForm | undefined
}

/** What an archive is made and known by, beside its revision. */
export interface StoreOptions {
  /** The file's name less `.tar.gz`, e.g. the hash of the revision. */
  fileName: string
  /** What others still take a path of this folder for: that name gets no other bytes, even where the log that knew it is gone. */
  named?: Pick<StoredArtifact, 'path' | 'digest'> | undefined
  /** `spec.ignore`. */
  ignore?: string | undefined
  /** Equal only for equal entries: with it, and with equal rules, an archive that is there already is used again and no entry is read. */
  contentKey?: string | undefined
  /** What becomes of symbolic links. Defaults to `drop`. */
  symlinks?: SymlinkPolicy | undefined
  metadata?: Record<string, string> | undefined
  signal?: AbortSignal | undefined
}

/** What has become current. */
export interface StoreResult {
  artifact: StoredArtifact
  /** False when the file of that path had these bytes and was current before: nothing for consumers to do. */
  changed: boolean
  /** Symbolic links that were left out. */
  droppedSymlinks: number
}

/** A stored file whose bytes have just been found to be right. `handle` is to be closed by the caller. */
export interface OpenedArtifact {
  artifact: StoredArtifact
  handle: FileHandle
  /** Of the open file: its size and the time of its last write, by which a change while it is read can be told. */
  stat: { size: bigint; mtimeNs: bigint }
}

/** What a sweep has removed. */
export interface Swept {
  folders: string[]
  blobs: number
  temps: number
}

/**
 * Where the archives of all objects are kept, and what is known of them. A `folder` is `<kind>/<namespace>/<name>`, a `path` `<folder>/<file>`.
 * Any number of processes may read; one at a time may write to a folder. Failures are ReconcileErrors with the reasons of Flux's
 * StorageOperationFailed: InvalidPath, DirectoryCreationFailed, ArchiveOperationFailed, SymlinkUpdateFailed, ReadOperationFailed,
 * GarbageCollectionFailed.
 */
export interface Storage {
  /** Random, and equal for all processes that share the folder. */
  readonly id: string

  /** Archives the entries, and makes them the current artifact of the folder. Durable when it resolves; without any effect when it rejects. */
  store(folder: string, revision: string, entries: Entries, options: StoreOptions): Promise<StoreResult>

  /** Whether a stored file is there, on record, and what it should be. */
  check(artifact: Pick<StoredArtifact, 'path' | 'digest'>): Promise<Integrity>

  /** What is stored under a path, its file unchanged since its bytes were found to be right; without opening it where that is known. */
  look(path: string): Promise<StoredArtifact | 'missing' | 'damaged' | undefined>

  /** Opens a file to serve it; `latest.tar.gz` is the current one. Undefined where no log knows the path. */
  open(path: string): Promise<OpenedArtifact | 'missing' | 'damaged' | undefined>

  /** An artifact of the past that is still stored, or the current one. */
  find(folder: string, query: HistoryQuery): Promise<StoredArtifact | undefined>

  /** Removes a file if it is damaged. */
  discard(path: string): Promise<void>

  /** Removes the files that need not be kept any more, never `currentPath`; gives their paths. */
  collectGarbage(folder: string, currentPath?: string): Promise<string[]>

  /** Removes folders of a kind whose object has been gone for the TTL, blobs nobody uses, and what dead processes have left. */
  sweep(kindFolder: string, isLive: (folder: string) => boolean): Promise<Swept>

  /** Looks at the current file of every folder this process has dealt with; gives the paths of the missing and damaged. Cheap when all is well. */
  patrol(): Promise<string[]>
}
