import { type Client, isStatus } from './client.ts'
import type { Informer } from './informer.ts'
import { type ConditionedObject, type Kind, keyOf, type KubeObject, objectKeyOf } from './kind.ts'
import { mergePatch } from './merge-patch.ts'

/** Where an object is written to, and whose cache takes in the answer. */
export interface Writer<T extends KubeObject> {
  client: Client
  kind: Kind<T>
  informer: Informer<T>
}

/** How often the object may have changed under a status that is to be written. */
const maxConflicts = 5

/**
 * Writes the difference between two states of a status; nothing where there is none. An object that is gone, or that is another one of the same name by
 * now, is left alone.
 */
export async function patchStatus<T extends ConditionedObject>(
  writer: Writer<T>,
  before: T,
  after: T,
  signal?: AbortSignal,
): Promise<void> {
  const status = mergePatch(before.status ?? {}, after.status ?? {})
  if (status === undefined) return
  const key = objectKeyOf(after)
  let present = writer.informer.cache.get(keyOf(after)) ?? after
  for (let conflicts = 0; ; conflicts++) {
    if (present.metadata.uid !== after.metadata.uid) return
    // On the status of custom resources a uid in the patch is ignored; the version is what a successor of the same name does not have.
    const patch = { metadata: { resourceVersion: present.metadata.resourceVersion }, status }
    try {
      writer.informer.put(await writer.client.patch<T>(writer.kind, key, patch, { subresource: 'status', signal }))
      return
    } catch (err) {
      if (isStatus(err, 404)) return
      if (!isStatus(err, 409) || conflicts === maxConflicts) throw err
    }
    const now = await writer.client.get(writer.kind, key, signal)
    if (!now) return
    present = now
  }
}

/** Adds or removes a finalizer. Refused with 409 when the object changed since it was read. */
export async function setFinalizer<T extends KubeObject>(
  writer: Writer<T>,
  object: T,
  finalizer: string,
  present: boolean,
  signal?: AbortSignal,
): Promise<T> {
  const others = (object.metadata.finalizers ?? []).filter((name) => name !== finalizer)
  const finalizers = present ? [...others, finalizer] : others
  const metadata = { uid: object.metadata.uid, resourceVersion: object.metadata.resourceVersion, finalizers }
  const written = await writer.client.patch<T>(writer.kind, objectKeyOf(object), { metadata }, { signal })
  writer.informer.put(written)
  return written
}
