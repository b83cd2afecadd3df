import type { ConditionedObject, Kind } from '../runtime/kind.ts'
import type { Entries } from '../artifact/entry.ts'
import type { Context } from '../runtime/context.ts'
import type { ServedArtifact } from '../artifact/artifact.ts'

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

/** What upstream holds now. */
export interface Resolved<U> {
  /** `[<named pointer>@]<algorithm>:<hash>` (RFC-0005); a new upstream identity is a new revision. */
  revision: string
  /** What `fetch` and `verify` need to know of it. */
  upstream: U
}

/** The content of one revision, still to be read. */
export interface Fetched {
  entries: Entries
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
  resolve(obj: T, ctx: Context): Promise<Resolved<U>>

  /** Offers that revision's files. Called only when bytes are needed. */
  fetch(obj: T, resolved: Resolved<U>, ctx: Context): Promise<Fetched>

  /** Throws unless the fetched revision is signed as the spec demands; what it returns is the message of `SourceVerified`. */
  verify?(obj: T, resolved: Resolved<U>, ctx: Context): Promise<string | undefined>

  /** The reason and message of the event on a pass that found nothing new. */
  unchanged?(revision: string): { reason: string; message: string }

  /** Spec fields that alter the archive's bytes, by the status field that records them, beside `observedIgnore`. */
  observed?: Record<string, (obj: T) => unknown>
}
