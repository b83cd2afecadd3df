import { messageOf } from '../../runtime/errors.ts'
import type { Access } from '../access/access.ts'
import { sshAddressOf } from '../ssh/address.ts'
import { redirectTarget } from '../url.ts'
import { boundedHref, headersOf, isRecord } from './batch.ts'
import { lfsFailure, type LfsOwner, type LfsRemote } from './lfs-http.ts'

/** What of a repository's `Remote` LFS stands on. */
export interface LfsSource {
  /** Without credentials. */
  readonly url: string
  readonly access: Access
  /** Runs a command on the server, where that is reached by ssh; gives what it says. */
  command?(words: readonly string[], signal: AbortSignal): Promise<Buffer>
}

/**
 * Finds the LFS API of a repository (Git LFS, "server discovery"): beside it, where its name ends with `.git`; over ssh where `git-lfs-authenticate` says, and as whom.
 * `.lfsconfig` is not asked: who may write to a repository may not say where its credentials go. Throws ReconcileError `GitOperationFailed`.
 */
export async function connectLfs(source: LfsSource, signal: AbortSignal): Promise<LfsRemote> {
  const { url, access } = source
  const owner = { shownUrl: url, access }
  if (source.command) return readAnswer(owner, await source.command(wordsFor(url), signal))
  const api = new URL(`${url.endsWith('.git') ? url : `${url}.git`}/info/lfs`)
  return { ...owner, api, headers: access.authorization ? { authorization: access.authorization } : {} }
}

function wordsFor(url: string): string[] {
  return ['git-lfs-authenticate', sshAddressOf(url).path, 'download']
}

function readAnswer(owner: LfsOwner, said: Buffer): LfsRemote {
  try {
    const answer: unknown = JSON.parse(said.toString())
    if (!isRecord(answer) || typeof answer['href'] !== 'string')
      throw new Error('it does not say where the objects are')
    // From the first slash of a row alone: tried from each of them, a row within it would take the square of its length.
    const api = redirectTarget(new URL('http://ssh'), boundedHref(answer['href']).replace(/(?<!\/)\/+$/, ''))
    return { ...owner, api, headers: headersOf(answer['header']) }
  } catch (err) {
    const why = err instanceof SyntaxError ? 'it says something else than JSON' : messageOf(err)
    throw lfsFailure(owner, `git-lfs-authenticate: ${why}`, { cause: err })
  }
}
