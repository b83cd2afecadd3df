import { type Context } from '../runtime/context.ts'
import { getCondition, Reason } from '../runtime/conditions.ts'
import { requestedAtAnnotation } from '../runtime/controller.ts'
import { ApiError, isStatus } from '../runtime/client.ts'
import { messageOf, StalledError, WaitingError } from '../runtime/errors.ts'
import { patchStatus, type Writer } from '../runtime/status.ts'
import { markFailed, markVerified, SourceVerified } from './conditions.ts'
import type { SourceObject } from './source.ts'

/** A pass that takes longer than this shows its progress in the status; shorter ones save that write. */
const showProgressAfterMs = 1_000

/** Writes the status of one pass: once at its end, and in between only when it takes long. */
export class OutcomeWriter<T extends SourceObject> {
  readonly #writer: Writer<T>
  readonly #ctx: Context
  readonly #timer: NodeJS.Timeout
  #shown: T
  #progress: Promise<void> = Promise.resolve()

  /** `before` is the object as the API server has it, `obj` the one that the pass works on. */
  constructor(writer: Writer<T>, before: T, obj: T, ctx: Context) {
    this.#writer = writer
    this.#ctx = ctx
    this.#shown = before
    this.#timer = setTimeout(() => {
      this.#progress = this.#show(structuredClone(obj)).catch((err: unknown) => {
        // Only a glimpse: the outcome is written whatever became of this.
        ctx.log.debug({ error: messageOf(err) }, 'progress not written')
      })
    }, showProgressAfterMs)
  }

  /** Throws when the API server does not take it: the pass has failed then, or nobody would try again before the interval is over. */
  async write(obj: T): Promise<void> {
    clearTimeout(this.#timer)
    await this.#progress
    if (this.#ctx.signal.aborted) return
    const requestedAt = obj.metadata.annotations?.[requestedAtAnnotation]
    if (requestedAt) obj.status = { ...obj.status, lastHandledReconcileAt: requestedAt }
    await this.#show(obj)
  }

  async #show(obj: T): Promise<void> {
    await patchStatus(this.#writer, this.#shown, obj, this.#ctx.signal)
    this.#shown = obj
  }
}

/** The spec has been dealt with, for good or ill. Not set while a retry is due. */
export function observe(obj: SourceObject): void {
  obj.status = { ...obj.status, observedGeneration: obj.metadata.generation ?? 0 }
}

/** The signature was checked (`message` says which), or none is asked for. An event only where it says what the condition did not. */
export function tellVerified(obj: SourceObject, message: string | undefined, ctx: Context): void {
  const before = getCondition(obj, SourceVerified)
  markVerified(obj, message)
  if (message === undefined || (before?.status === 'True' && before.message === message)) return
  ctx.events.emit(obj, { severity: 'trace', reason: Reason.Succeeded, message })
}

/** What has been stored, in the words of events. */
export interface StoredNote {
  /** E.g. `commit 'fix typo'`. */
  summary: string
  /** Symbolic links that were left out. */
  droppedSymlinks: number
  /** Whether the pass before had failed. */
  recovered: boolean
}

/** Only new bytes are news; the same ones after a failure mean that it is over. */
export function tellStored(before: SourceObject, obj: SourceObject, note: StoredNote, ctx: Context): void {
  const { droppedSymlinks, recovered } = note
  const message = `stored artifact for ${note.summary}`
  const { revision, digest, size } = obj.status!.artifact!
  ctx.log.info({ revision, digest, sizeBytes: size, droppedSymlinks }, message)
  const isNew = before.status?.artifact?.digest !== digest
  const metadata = metadataOf(obj)
  if (isNew || recovered)
    ctx.events.emit(obj, { severity: 'info', reason: isNew ? 'NewArtifact' : 'Succeeded', message, metadata })
  if (isNew && droppedSymlinks > 0)
    ctx.events.emit(obj, {
      severity: 'error',
      reason: 'SymlinksDropped',
      message: `left ${droppedSymlinks} symbolic link${droppedSymlinks > 1 ? 's' : ''} out of the artifact for revision '${revision}'`,
      metadata,
    })
}

/** Nothing new upstream; worth an event of its own only after a failure. */
export function tellUnchanged(
  obj: SourceObject,
  note: { reason: string; message: string; recovered: boolean },
  ctx: Context,
): void {
  const { revision } = obj.status!.artifact!
  const { reason, message, recovered } = note
  ctx.log.info({ revision }, 'artifact up-to-date')
  if (!recovered) ctx.events.emit(obj, { severity: 'trace', reason, message })
  else
    ctx.events.emit(obj, {
      severity: 'info',
      reason: 'Succeeded',
      message: `stored artifact for revision '${revision}'`,
      metadata: metadataOf(obj),
    })
}

/** Puts a failure into conditions and an event; the work queue decides on the retry. `own` are the failure conditions of this kind alone. */
export function tellFailure(obj: SourceObject, err: unknown, ctx: Context, own?: readonly string[]): void {
  // A conflict says that somebody else wrote meanwhile, nothing about the source.
  if (isStatus(err, 409)) return
  const { reason, message } = markFailed(obj, err, own)
  if (err instanceof StalledError) observe(obj)
  // What is waited for is no news for people; trouble with the API server is none about this source.
  const quiet = err instanceof WaitingError || err instanceof ApiError
  ctx.events.emit(obj, { severity: quiet ? 'trace' : 'error', reason, message })
}

/** What Flux's alerts and dashboards read from an event. */
function metadataOf(obj: SourceObject): Record<string, string> {
  const { revision = '', digest = '' } = obj.status?.artifact ?? {}
  return { 'source.toolkit.fluxcd.io/revision': revision, 'source.toolkit.fluxcd.io/digest': digest }
}
