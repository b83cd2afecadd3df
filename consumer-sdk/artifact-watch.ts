import { artifactInformerOptions, ownerIndex } from '../controllers/artifact/artifact.ts'
import type { Artifact } from '../controllers/artifact/types.ts'
import type { IndexFunction } from '../controllers/runtime/indexer.ts'
import type { Change, Informer } from '../controllers/runtime/informer.ts'
import { keyOf, type KubeObject } from '../controllers/runtime/kind.ts'
import { equal } from '../controllers/runtime/merge-patch.ts'
import { parseSourceRef, sourceKey, type SourceRef } from './source-ref.ts'

/** The index over consuming objects by the source they refer to. Its keys are those of the index over Artifacts. */
export const sourceRefIndex = 'sourceRef'

/** An object with a bad reference is in no index; its own pass says what is wrong with it. */
export function bySourceRef<T extends KubeObject>(sourceRef: (obj: T) => SourceRef | undefined): IndexFunction<T> {
  return (obj) => {
    try {
      return [sourceKey(parseSourceRef(sourceRef(obj), obj.metadata.namespace ?? ''))]
    } catch {
      return [] // not only StalledError: the function is not ours, and must not cost the informer its watch
    }
  }
}

/** Calls `enqueue` with the key of every consuming object that a change of an Artifact may concern, under its owners of before and of now. */
export function followArtifacts<T extends KubeObject>(
  artifacts: Informer<Artifact>,
  objects: Informer<T>,
  enqueue: (key: string) => void,
): void {
  artifacts.onChange((change) => {
    if (!matters(change)) return
    const states = change.type === 'updated' ? [change.object, change.previous] : [change.object]
    for (const source of new Set(states.flatMap(keysOf)))
      for (const object of objects.cache.by(sourceRefIndex, source)) enqueue(keyOf(object))
  })
}

const keysOf = (artifact: Artifact) => artifactInformerOptions.indexes![ownerIndex]!(artifact)

function matters(change: Change<Artifact>): boolean {
  if (change.type !== 'updated') return true
  const { object, previous } = change
  return !equal(essence(object), essence(previous))
}

/** What a consumer could do something about. */
function essence({ metadata, spec }: Artifact): unknown {
  const { revision, digest, url, size } = spec ?? {}
  return [revision, digest, url, size, metadata.ownerReferences, metadata.deletionTimestamp]
}
