import type { Artifact } from '../artifact/types.ts'
import { ownerIndex } from '../artifact/artifact.ts'
import type { Context } from '../runtime/context.ts'
import type { Informer } from '../runtime/informer.ts'
import type { KubeObject } from '../runtime/kind.ts'
import { referenceKey } from '../runtime/owners.ts'
import { readSecret } from '../runtime/secret.ts'
import type { SourceContext } from './source.ts'

/** What a pass over `obj` may use. */
export function makeSourceContext(ctx: Context, obj: KubeObject, artifacts: Informer<Artifact>): SourceContext {
  const namespace = obj.metadata.namespace ?? ''
  return {
    ...ctx,
    secrets: { read: (name) => readSecret(ctx, namespace, name) },
    artifacts: {
      of: (kind, name) => artifacts.cache.by(ownerIndex, referenceKey(kind.group, kind.kind, namespace, name))[0],
      open: () => Promise.reject(new Error('not there yet')),
    },
  }
}
