import { createHash } from 'node:crypto'
import { ReconcileError } from '../../runtime/errors.ts'
import { sanitize } from '../failure.ts'
import type { Lease } from '../mirror/mirror.ts'
import { commitFrom, readLeased, withObject, type Place } from './reading.ts'
import { sparsePathsOf } from './sparse.ts'
import { Walk } from './walk.ts'

/**
 * The identity of what is at the paths of `spec.sparseCheckout`: equal for equal files, whatever else the commits hold. Fetches no files where the
 * server can leave them out. Throws ReconcileError `GitOperationFailed` where a path is missing.
 */
export async function scopeDigest(
  place: Omit<Place, 'partial'>,
  sparse: readonly string[] | undefined,
): Promise<string> {
  const paths = sparsePathsOf(sparse)
  const partial = { ...place, partial: true }
  return await withObject(partial, async (lease) => {
    const digest = await scopeOf(partial, lease, paths)
    lease.release()
    return digest
  })
}

/** The same for a commit that is leased; without paths it is the id of the root folder. A second time it comes out of memory. */
export async function scopeOf(place: Place, lease: Lease, paths: readonly string[] | undefined): Promise<string> {
  const { tree } = commitFrom(place, await readLeased(place, lease, 'commit'))
  if (!paths) return tree
  const { mirror, signal } = place
  const key = `${mirror.key} scope ${tree} ${createHash('sha256').update(JSON.stringify(paths)).digest('hex')}`
  const digest = await mirror.memory.read(key, signal, (shared) =>
    digestOf({ ...place, signal: shared }, lease, tree, paths),
  )
  return digest.toString('hex')
}

async function digestOf(place: Place, lease: Lease, tree: string, paths: readonly string[]): Promise<Buffer> {
  const hash = createHash('sha256')
  const walk = new Walk(place, lease)
  try {
    for (const path of paths) {
      const row = await walk.find(tree, path)
      if (!row) throw missing(place, path)
      hash.update(`${row.mode} ${row.oid} ${path}\0`)
    }
  } finally {
    await walk.close()
  }
  return hash.digest()
}

function missing({ sha }: Place, path: string): ReconcileError {
  const what = `sparse checkout dir '${sanitize(path)}' does not exist in repository: commit '${sha}' has no such file or folder`
  return new ReconcileError('GitOperationFailed', `failed to sparse checkout directories : ${what}`)
}
