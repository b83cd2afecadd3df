import { type Context } from '../runtime/context.ts'
import { requestedAtAnnotation } from '../runtime/controller.ts'
import { ReconcileError, StalledError } from '../runtime/errors.ts'
import { patchStatus, type Writer } from '../runtime/status.ts'
import { hasFailed, markFailed } from './conditions.ts'
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
      this.#progress = this.#show(structuredClone(obj))
    }, showProgressAfterMs)
  }

  async write(obj: T): Promise<void> {
    clearTimeout(this.#timer)
    await this.#progress
    if (this.#ctx.signal.aborted) return
    const requestedAt = obj.metadata.annotations?.[requestedAtAnnotation]
    if (requestedAt) obj.status = { ...obj.status, lastHandledReconcileAt: requestedAt }
    await this.#show(obj)
  }

  async #show(obj: T): Promise<void> {
    try {
      await patchStatus(this.#writer, this.#shown, obj, this.#ctx.signal)
      this.#shown = obj
    } catch (err) {
      // It must not take the place of the pass's own error; the next pass writes the same again.
      if (!this.#ctx.signal.aborted) this.#ctx.log.error({ error: err }, 'status not written')
    }
  }
}

/** The spec has been dealt with, for good or ill. Not set while a retry is due. */
export function observe(obj: SourceObject): void {
  obj.status = { ...obj.status, observedGeneration: obj.metadata.generation ?? 0 }
}

/** Only new bytes are news; the same ones after a failure mean that it is over. */
export function tellStored(before: SourceObject, obj: SourceObject, summary: string, ctx: Context): void {
  const message = `stored artifact for ${summary}`
  const { revision, digest, size } = obj.status!.artifact!
  ctx.log.info({ revision, digest, sizeBytes: size }, message)
  const isNew = before.status?.artifact?.digest !== digest
  if (isNew || hasFailed(before)) {
    ctx.events.emit(obj, {
      severity: 'info',
      reason: isNew ? 'NewArtifact' : 'Succeeded',
      message,
      metadata: metadataOf(obj),
    })
  }
}

/** Nothing new upstream; worth an event of its own only after a failure. */
export function tellUnchanged(
  before: SourceObject,
  obj: SourceObject,
  note: { reason: string; message: string },
  ctx: Context,
): void {
  const { revision } = obj.status!.artifact!
  ctx.log.info({ revision }, 'artifact up-to-date')
  if (!hasFailed(before)) ctx.events.emit(obj, { severity: 'trace', ...note })
  else
    ctx.events.emit(obj, {
      severity: 'info',
      reason: 'Succeeded',
      message: `stored artifact for revision '${revision}'`,
      metadata: metadataOf(obj),
    })
}

/** Puts a failure into conditions and an event; the work queue decides on the retry. */
export function tellFailure(obj: SourceObject, err: unknown, ctx: Context): void {
  // A conflict says that somebody else wrote meanwhile, nothing about the source.
  if (err instanceof ReconcileError && err.reason === 'Conflict') return
  const { reason, message } = markFailed(obj, err)
  if (err instanceof StalledError) observe(obj)
  ctx.events.emit(obj, { severity: 'error', reason, message })
}

/** What Flux's alerts and dashboards read from an event. */
function metadataOf(obj: SourceObject): Record<string, string> {
  const { revision = '', digest = '' } = obj.status?.artifact ?? {}
  return { 'source.toolkit.fluxcd.io/revision': revision, 'source.toolkit.fluxcd.io/digest': digest }
}
