import type { ServedArtifact } from '../artifact/artifact.ts'
import type { SymlinkPolicy } from '../artifact/archive/archive-plan.ts'
import type { Entries, Entry } from '../artifact/entry.ts'
import type { Artifact } from '../artifact/types.ts'
import type { Context } from '../runtime/context.ts'
import type { ConditionedObject, Kind } from '../runtime/kind.ts'
import type { SecretData } from '../runtime/secret.ts'

/** The fields that every source kind has. */
export interface SourceObject extends ConditionedObject {
  spec: {
    /** Go duration; how often upstream is asked. */
    interval: string
    /** Go duration; the limit of one pass. Defaults to 60s. */
    timeout?: string
    suspend?: boolean
    ignore?: string
  }
  status?: ConditionedObject['status'] & {
    artifact?: ServedArtifact
    lastHandledReconcileAt?: string
    observedIgnore?: string
  }
}

/**
 * What one pass over a source may use. Secrets and Artifacts are those of the object's own namespace; what a pass has asked for is watched, and a
 * change of it brings about the next pass at once.
 */
export interface SourceContext extends Context {
  secrets: {
    /** The decoded data of a Secret. Throws ReconcileError `AuthenticationFailed`; the message holds the name and never the content. */
    read(name: string): Promise<SecretData>
  }
  artifacts: {
    /** The Artifact of another source, found by its owner reference as any consumer finds it; undefined where there is none (yet). */
    of(kind: Kind, name: string): Artifact | undefined
    /** Its files, once the bytes have been checked against its digest. Must be closed. */
    open(artifact: Artifact): Promise<OpenedEntries>
  }
}

/** The files of an Artifact, which may be read in any order. */
export interface OpenedEntries {
  entries: readonly Entry[]
  /** Frees what they are read from; none can be opened after. */
  close(): Promise<void>
}

/** What upstream holds now. */
export interface Resolved<U> {
  /** `[<named pointer>@]<algorithm>:<hash>` (RFC-0005); a new upstream identity is a new revision. */
  revision: string
  /** What `fetch` and `verify` need to know of it. */
  upstream: U
}

/** The content of one revision, still to be read. */
export interface Fetched {
  /** Not touched before the first entry is asked for, and never where the archive is there already: see `contentKey`. */
  entries: Entries
  /**
   * Names everything that the entries depend on, for objects that offer the very same ones: they share one archive. It must hold what tells apart whose
   * credentials gave access, so that nobody is handed what their own would not have got.
   */
  contentKey?: string
  /** What becomes of symbolic links. Defaults to `drop`. */
  symlinks?: SymlinkPolicy
  /** How events name what was stored, e.g. `commit 'fix typo'`. Defaults to `revision '<revision>'`. */
  summary?: string
  /** Goes into the Artifact's `spec.metadata`. */
  metadata?: Record<string, string>
  /** Called once when the entries have been read or given up. */
  close?(): Promise<void>
}

/**
 * The three things in which one kind of source differs from another. Everything else (finalizer, suspend, interval, timeout, conditions,
 * events, storage, the Artifact, garbage collection) is the source reconciler's.
 */
export interface Source<T extends SourceObject = SourceObject, U = unknown> {
  kind: Kind<T>

  /** Asks upstream what it holds now: one ref, one HEAD, one listing. Must be cheap, it runs every interval. */
  resolve(obj: T, ctx: SourceContext): Promise<Resolved<U>>

  /** Offers that revision's files. Called only when bytes are needed. */
  fetch(obj: T, resolved: Resolved<U>, ctx: SourceContext): Promise<Fetched>

  /**
   * Throws unless the revision is signed as the spec demands; what it returns is the message of `SourceVerified`, undefined where no signature is asked
   * for. Called on every pass, since the keys may have changed although the revision has not: must be cheap when neither has.
   */
  verify?(obj: T, resolved: Resolved<U>, ctx: SourceContext): Promise<string | undefined>

  /** The reason and message of the event on a pass that found nothing new. */
  unchanged?(revision: string): { reason: string; message: string }

  /** What alters the archive's bytes beside the revision and `observedIgnore`, by the status field that records it. */
  observed?(obj: T, resolved: Resolved<U>): Record<string, unknown>

  /** Why an artifact of this revision must be built anew although upstream has not moved, in the words of `ArtifactOutdated`; asked only when `observed` differs. */
  outdated?(obj: T, resolved: Resolved<U>): { reason: string; message: string } | undefined

  /** Condition types of this kind alone that are there only while something is wrong, e.g. `IncludeUnavailable`. */
  failureConditions?: readonly string[]
}
