// Generated from crds/gitrepositories.yaml by `npm run generate`. Change it there.
import type { Condition, Kind, KubeObject } from '../runtime/kind.ts'

/** A branch, tag or commit of a Git repository, offered to the cluster as an artifact. */
export interface GitRepository extends KubeObject {
  spec: GitRepositorySpec
  status?: GitRepositoryStatus
}

/** Where the API serves it. */
export const GitRepositoryKind: Kind<GitRepository> = {
  group: 'source.toolkit.fluxcd.io',
  version: 'v1',
  kind: 'GitRepository',
  plural: 'gitrepositories',
}

/** What to fetch, how often, and with which credentials. */
export interface GitRepositorySpec {
  /** Address of the repository. The short form `git@host:path` is not a URL; write `ssh://git@host/path`. */
  url: string
  /** Secret in the same namespace with the credentials. For http and https `username` and `password`, or `bearerToken`, and for TLS `ca.crt`, `tls.crt` and `tls.key`; for ssh `identity` and `known_hosts`. */
  secretRef?: {
    /** Name of the Secret. */
    name: string
  }
  /** Who issues the credentials. `generic`, which is meant where none is given, takes them from the Secret. */
  provider?: 'generic' | 'aws' | 'azure' | 'github'
  /** Service account in the same namespace whose identity is used with the provider `azure` or `aws`. */
  serviceAccountName?: string
  /** Time between two looks at the repository, such as `5m`. A small random part is added or taken away. */
  interval: string
  /** Longest time that one pass may spend on the repository, such as `60s`. */
  timeout?: string
  ref?: GitRepositoryRef
  verify?: GitRepositoryVerify
  /** Secret in the same namespace with the `address` of a proxy and, where it asks for them, `username` and `password`. */
  proxySecretRef?: {
    /** Name of the Secret. */
    name: string
  }
  /** Files to leave out, one pattern on each line in the syntax of `.gitignore`. As soon as there is one pattern here or in a `.sourceignore` file, the built-in list no longer applies. */
  ignore?: string
  /** Stops the work on this object until it is false again. What is stored is still served. */
  suspend?: boolean
  /** Fetches submodules too, with the same credentials. */
  recurseSubmodules?: boolean
  /** Content of other GitRepository objects that is copied into this one's artifact, in this order. */
  include?: GitRepositoryInclude[]
  /** Folders to fetch instead of the whole tree. */
  sparseCheckout?: string[]
  /**
   * Further addresses of the same repository, asked in this order when the ones before cannot be reached. They get the same credentials. Not in Flux.
   *
   * @maxItems 8
   */
  fallbackURLs?: string[]
  /** With `SparseCheckout` the revision stays that of the commit that last changed something below the folders of `sparseCheckout`, so that commits elsewhere change nothing. `Repository` by default. Not in Flux. */
  revisionScope?: 'Repository' | 'SparseCheckout'
  /** What becomes of symbolic links. `Keep` keeps those whose target is part of the artifact; others, and all with `Drop`, which is the default, are left out, and an event counts them. Not in Flux. */
  symlinks?: 'Drop' | 'Keep'
  /** Puts the files that Git LFS keeps elsewhere in the place of their pointers. Not in Flux. */
  lfs?: boolean
}

/** Which commit is wanted. Where several fields are set, `commit` wins over `name`, that over `tag`, `semver` and `branch`. Without any of them it is the branch `master`. */
export interface GitRepositoryRef {
  /** Branch whose newest commit is wanted. */
  branch?: string
  /** Tag whose commit is wanted. */
  tag?: string
  /** Range of semantic versions, such as `>=1.2.0 <2.0.0`. The highest tag within it is wanted. */
  semver?: string
  /** Full name of a reference, such as `refs/pull/420/head`. */
  name?: string
  /** Full hash of the commit. Together with `branch` or `name` the commit must be part of that reference's history. */
  commit?: string
  /** Means the branch that the repository's HEAD names, whatever it is called. Applies where none of the other fields is set. Not in Flux. */
  defaultBranch?: boolean
  tagFilter?: GitRepositoryTagFilter
}

/** Narrows the tags that `semver` chooses from, for repositories whose tags carry a prefix. Not in Flux. */
export interface GitRepositoryTagFilter {
  /** Regular expression in the syntax of Go (RE2). Only tags that it matches count. */
  pattern: string
  /** What of a matching tag is read as the version, with `$1` or `$name` for groups of the pattern. The whole tag by default. */
  extract?: string
}

/** Demands a signature on what is fetched. */
export interface GitRepositoryVerify {
  /** What must be signed, the commit, the tag, or both. `head` is an older way to write `HEAD`. */
  mode?: 'head' | 'HEAD' | 'Tag' | 'TagAndHEAD'
  /** Secret in the same namespace with the public keys of everyone whose signature is trusted, PGP keys in entries that end in `.asc` and SSH keys in entries that end in `.sshpub`. */
  secretRef: {
    /** Name of the Secret. */
    name: string
  }
}

export interface GitRepositoryInclude {
  /** The GitRepository in the same namespace whose artifact is included. */
  repository: {
    /** Name of the GitRepository. */
    name: string
  }
  /** Folder of the other artifact to copy. All of it by default. */
  fromPath?: string
  /** Folder to copy it to. By default it is named after the other repository. */
  toPath?: string
}

/** What was last seen and stored. */
export interface GitRepositoryStatus {
  /** Generation of the spec that was last dealt with, for good or ill. */
  observedGeneration?: number
  /** Value of the annotation `reconcile.fluxcd.io/requestedAt` that was last acted upon. */
  lastHandledReconcileAt?: string
  /** State of the object, one entry per aspect; `Ready` sums them up. */
  conditions?: Condition[]
  artifact?: GitRepositoryArtifact
  /** The artifacts of `spec.include` that were copied, in the same order. */
  includedArtifacts?: GitRepositoryArtifact[]
  /** The `spec.ignore` that the stored file was made with. */
  observedIgnore?: string
  /** The `spec.recurseSubmodules` that the stored file was made with. */
  observedRecurseSubmodules?: boolean
  /** The `spec.include` that the stored file was made with. */
  observedInclude?: GitRepositoryInclude[]
  /** The `spec.sparseCheckout` that the stored file was made with. */
  observedSparseCheckout?: string[]
  /** The `spec.revisionScope` that the stored file was made with. */
  observedRevisionScope?: string
  /** The `spec.symlinks` that the stored file was made with. */
  observedSymlinks?: string
  /** The `spec.lfs` that the stored file was made with. */
  observedLFS?: boolean
  /** The mode of the last successful verification. */
  sourceVerificationMode?: string
}

/** The file that is being served. */
export interface GitRepositoryArtifact {
  /** Place of the file below the root of the storage, `<kind>/<namespace>/<name>/<file>`. */
  path: string
  /** Address from which the file can be downloaded inside the cluster. */
  url: string
  /** Where upstream stood, such as `main@sha1:<commit>` or `sha1:<commit>`. */
  revision: string
  /** Checksum of the file as `<algorithm>:<hex>`. */
  digest: string
  /** Length of the file in bytes. */
  size?: number
  /** When the file was stored. */
  lastUpdateTime: string
  /** Further facts about the content. */
  metadata?: Record<string, string>
}
