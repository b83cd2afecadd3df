import { applyArtifact, cachedArtifact, isCurrent, type ServedArtifact } from '../artifact/artifact.ts'
import { type Artifact, ArtifactKind } from '../artifact/types.ts'
import type { Context } from '../runtime/context.ts'
import type { Informer } from '../runtime/informer.ts'
import { type Kind, keyOf } from '../runtime/kind.ts'
import type { SourceObject } from './source.ts'

export interface PublicationsOptions {
  kind: Kind
  artifacts: Informer<Artifact>
  /** The URL under which others reach a stored path. */
  urlOf: (path: string) => string
}

/** The Artifacts of one kind of source: what they should say, and that they say it. */
export class Publications {
  readonly #options: PublicationsOptions
  /** What the Artifact of each object should say, once this process has written it. */
  readonly #wanted: Map<string, ServedArtifact> = new Map()

  constructor(options: PublicationsOptions) {
    this.#options = options
  }

  /** Whether somebody else has changed or deleted the Artifact of this object. */
  isDisturbed(obj: SourceObject): boolean {
    const wanted = this.#wanted.get(keyOf(obj))
    if (!wanted || obj.metadata.deletionTimestamp) return false
    return !isCurrent(this.#known(obj), obj, wanted)
  }

  /** Lets the Artifact say what is stored, and then the status. The bytes are being served already. */
  async publish(obj: SourceObject, stored: Omit<ServedArtifact, 'url'>, ctx: Context): Promise<void> {
    const { kind, artifacts, urlOf } = this.#options
    const served: ServedArtifact = { ...stored, url: urlOf(stored.path) }
    const known = this.#known(obj)
    this.#wanted.set(keyOf(obj), served)
    if (!isCurrent(known, obj, served))
      artifacts.put(await applyArtifact(ctx.client, kind, obj, served, known, ctx.signal))
    obj.status = { ...obj.status, artifact: served }
  }

  /** Deletes the Artifact of an object that is about to go, unless it is another's by now. */
  async withdraw(obj: SourceObject, ctx: Context): Promise<void> {
    const artifact = this.#known(obj)
    if (!artifact?.metadata.ownerReferences?.some((owner) => owner.uid === obj.metadata.uid)) return
    const key = { namespace: obj.metadata.namespace ?? '', name: artifact.metadata.name }
    await ctx.client.delete(ArtifactKind, key, artifact.metadata.uid, ctx.signal)
  }

  /** The object `namespace/name` is gone. */
  forget(key: string): void {
    this.#wanted.delete(key)
  }

  #known(obj: SourceObject): Artifact | undefined {
    return cachedArtifact(this.#options.artifacts, this.#options.kind, obj)
  }
}
