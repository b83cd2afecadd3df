import type { Context } from '../controllers/runtime/context.ts'
import type { Result } from '../controllers/runtime/controller.ts'
import type { ConditionedObject, Kind } from '../controllers/runtime/kind.ts'
import type { ArtifactHandle } from './artifact-handle.ts'
import type { SourceKind, SourceRef } from './source-ref.ts'

/** The fields of a consuming kind that the SDK reads and writes. All are optional but the kind's own. */
export interface ConsumerObject extends ConditionedObject {
  spec: {
    /** Go duration; how often the consumer is called although nothing has changed. Never, where the kind has no such field. */
    interval?: string
    /** Go duration; the limit of one pass. */
    timeout?: string
    suspend?: boolean
  }
  status?: ConditionedObject['status'] & {
    lastHandledReconcileAt?: string
    lastAttemptedRevision?: string
    lastAppliedRevision?: string
    /** What decides whether an artifact is new. A kind whose CRD lacks it is called once more after each restart. */
    lastAppliedDigest?: string
  }
}

/** What follows a call that went well. `requeueAfterMs` asks for another one before the interval is over. */
export interface ConsumerResult extends Result {
  /** For the Ready condition and the event. Defaults to `applied revision <revision>`. */
  message?: string
}

/** An action or a deployer: what one kind does with the artifacts it refers to. */
export interface Consumer<T extends ConsumerObject = ConsumerObject> {
  kind: Kind<T>
  /** Name of field manager, event source and lease. Defaults to `openflux-<kind>`. */
  component?: string
  /** The source kinds that may be referred to; all of them where absent. */
  allowedKinds?: readonly SourceKind[]

  /** Where the object names its source. Runs for every object that changes: no side effects. */
  sourceRef(obj: T): SourceRef | undefined

  /**
   * Does the work. Called once for each new digest, for a new spec, on request and at each interval; again after an error (ReconcileError, WaitingError or
   * StalledError decide when). Changes of `obj.status` are written, also after an error.
   */
  reconcile(obj: T, artifact: ArtifactHandle, ctx: Context): Promise<ConsumerResult | void>

  /** Undoes the work before the object goes. Not called for suspended objects, which are let go as they are. */
  finalize?(obj: T, ctx: Context): Promise<void>
}
