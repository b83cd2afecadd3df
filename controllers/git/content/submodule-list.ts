import type { Lease } from '../mirror/mirror.ts'
import { gitFailure } from '../failure.ts'
import { commitFrom, explained, readLeased, type Place } from './reading.ts'
import { readGitmodules } from './gitmodules.ts'
import { ListingBudget, listTree, type Gitlink } from './listing.ts'
import { ObjectReader } from './objects.ts'
import { Walk, type Row } from './walk.ts'

/** A submodule, and what `.gitmodules` says of where it is; undefined where it says nothing or contradicts itself. */
export interface Submodule extends Gitlink {
  url: string | undefined
}

const gitmodules = '.gitmodules'

/** The submodules of a commit that is leased, of all of it or of what is at the paths. Throws ReconcileError `GitOperationFailed`. */
export async function readSubmodules(
  place: Place,
  lease: Lease,
  paths: readonly string[] | undefined,
): Promise<Submodule[]> {
  const { sha, signal } = place
  try {
    const origin = { key: '', prefix: '', read: () => Promise.reject(new Error('not to be read')) }
    const request = {
      repository: lease.repository,
      sha,
      origin,
      budget: new ListingBudget(),
      gitlinksOnly: true,
      signal,
    }
    const { gitlinks } = await listTree({ ...request, paths })
    if (gitlinks.length === 0) return []
    const urls = await urlsOf(place, lease)
    return gitlinks.map((gitlink) => ({ ...gitlink, url: urls.get(gitlink.path) }))
  } catch (err) {
    throw explained(err, lease, place)
  }
}

async function urlsOf(place: Place, lease: Lease): Promise<Map<string, string | undefined>> {
  const { tree } = commitFrom(place, await readLeased(place, lease, 'commit'))
  const row = await rowAt(place, lease, tree)
  if (!row) return new Map()
  if (!row.mode.startsWith('100')) throw gitFailure(place.mirror.remote.url, `${gitmodules} is not a file`)
  const content = await contentOf(place, lease, row.oid)
  return await readGitmodules(content, { env: lease.repository.env, signal: place.signal })
}

async function rowAt(place: Place, lease: Lease, tree: string): Promise<Row | undefined> {
  const walk = new Walk(place, lease)
  try {
    return await walk.find(tree, gitmodules)
  } finally {
    await walk.close()
  }
}

/** The file itself may be the one thing of a commit in part that is not there yet. */
async function contentOf(place: Place, lease: Lease, oid: string): Promise<Buffer> {
  const { mirror, signal } = place
  const given = lease.partial ? await mirror.fetchFiles(place, [gitmodules], signal) : undefined
  const reader = new ObjectReader((given ?? lease).repository, signal, (err) => explained(err, given ?? lease, place))
  try {
    const content = await reader.read(oid, 'blob')
    if (!Buffer.isBuffer(content)) throw gitFailure(mirror.remote.url, `${gitmodules} is larger than 1 MiB`)
    return content
  } finally {
    await reader.close()
    given?.release()
  }
}
