export { defaultArchiveLimits, type ArchiveLimits } from './archive/archive-plan.ts'
export { writeArchive, type ArchiveOptions, type ArchiveResult } from './archive/archive.ts'
export {
  applyArtifact,
  artifactFolder,
  artifactName,
  cachedArtifact,
  kindFolder,
  ownerIndex,
  type ServedArtifact,
} from './artifact.ts'
export {
  digestAlgorithms,
  isDigestAlgorithm,
  makeHasher,
  parseDigest,
  type DigestAlgorithm,
  type Hasher,
} from './digest.ts'
export type { Entries, Entry } from './entry.ts'
export { gzipSingle, type Compressor } from './archive/gzip.ts'
export { gzipMembers } from './archive/member-gzip.ts'
export { ignoreFileName, makeIgnore, type IgnoreRules } from './ignore/ignore.ts'
export type { Listening, ListenOptions } from './server/listen.ts'
export { quote } from './quote.ts'
export { makeFileServer, type FileServer, type FileServerOptions } from './server/server.ts'
export {
  openStorage,
  type HistoryQuery,
  type Integrity,
  type OpenedArtifact,
  type Storage,
  type StorageOptions,
  type StoreOptions,
  type StoreResult,
} from './storage/storage.ts'
export type { StoredArtifact } from './stored.ts'
export { ArtifactKind, type Artifact } from './types.ts'
