import { artifactFolder } from '../artifact/artifact.ts'
import type { Storage } from '../artifact/storage/storage.ts'
import type { StoredArtifact } from '../artifact/stored.ts'
import type { Context } from '../runtime/context.ts'
import { messageOf } from '../runtime/errors.ts'
import type { Kind } from '../runtime/kind.ts'
import { markBuilding } from './conditions.ts'
import type { SourceObject } from './source.ts'

/** The artifact that the status names, by the storage's own record, if it is there and right; else why it must be built goes into the conditions. */
export async function checkStored(
  storage: Storage,
  kind: Kind,
  obj: SourceObject,
  ctx: Context,
): Promise<StoredArtifact | undefined> {
  const named = obj.status?.artifact
  if (!named) {
    markBuilding(obj, '')
    return undefined
  }
  const folder = artifactFolder(kind, obj)
  const state = isIn(folder, named.path) ? await storage.check(named) : 'missing'
  if (state === 'damaged') {
    const message = `failed to verify integrity of artifact: computed digest doesn't match '${named.digest}'`
    ctx.events.emit(obj, { severity: 'error', reason: 'ArtifactVerificationFailed', message })
    ctx.log.error({ path: named.path }, message)
    await storage.discard(named.path)
  }
  // A status can be written by hand, and a pass can end between storing and publishing: only the current entry of the record counts.
  const current = state === 'intact' ? await storage.find(folder, 'latest') : undefined
  if (current?.path === named.path && current.digest === named.digest && current.revision === named.revision)
    return current
  ctx.log.info({ path: named.path, state }, 'artifact must be built anew')
  markBuilding(obj, 'disappeared from storage')
  return undefined
}

/** Old files are no part of the outcome: what cannot be removed now will be the next time. */
export async function collectGarbage(storage: Storage, kind: Kind, obj: SourceObject, ctx: Context): Promise<void> {
  try {
    await storage.collectGarbage(artifactFolder(kind, obj), obj.status?.artifact?.path)
  } catch (err) {
    ctx.log.error({ error: messageOf(err) }, 'garbage collection failed')
  }
}

/** The hash of a revision names its file; whatever could not stand in a file name is left out. */
export function fileNameOf(revision: string): string {
  const hash = revision.slice(revision.lastIndexOf(':') + 1)
  return hash.replace(/[^A-Za-z0-9._+-]/g, '_').replace(/^\.+/, '')
}

/** A status written by hand, or by another tool, must not make us read or delete files of other objects. */
function isIn(folder: string, path: string): boolean {
  return path.startsWith(`${folder}/`) && !path.slice(folder.length + 1).includes('/')
}
