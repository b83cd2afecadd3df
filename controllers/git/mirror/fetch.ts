import { availableParallelism } from 'node:os'
import { ReconcileError } from '../../runtime/errors.ts'
import { Throttle } from '../../runtime/throttle.ts'
import type { GitHome } from '../environment.ts'
import { aborted, gitFailure } from '../failure.ts'
import { GitError, runGit } from '../git.ts'
import type { Remote } from '../protocol/remote.ts'
import type { BareRepository } from './repository.ts'

/** One fetch by native git. */
export interface FetchRequest {
  repository: BareRepository
  remote: Remote
  home: GitHome
  refspecs?: readonly string[]
  /** Commits of history to fetch; all of it without. */
  depth?: number
  /** What the server is to leave out: files and folders, or files alone. */
  filter?: 'tree:0' | 'blob:none'
  /** Objects that are wanted by their ids, however many; they are kept without a name. */
  objects?: readonly string[]
  /** Limit of the repository's size on disk. */
  maxBytes: number
  signal: AbortSignal
  onStart: (group: number) => void
}

/** The server does not give this commit, or has no such ref. */
export class RefusedError extends ReconcileError {}

/** The server is not, or no longer, where it was asked. */
export class MovedError extends ReconcileError {}

/** What is on disk is not what git left there. */
export class DamagedError extends ReconcileError {}

/** The repository has outgrown its limit. */
export class TooLargeError extends ReconcileError {}

const watchMs = 50
/** Half of the time of a fetch is waiting; each takes memory in proportion to what it brings. */
const fetches = new Throttle(2 * availableParallelism())

/** Runs one fetch. Throws RefusedError, MovedError, DamagedError, TooLargeError or another ReconcileError `GitOperationFailed`. */
export async function fetchInto(request: FetchRequest): Promise<void> {
  const { repository, remote, home, signal, maxBytes, onStart } = request
  const tooLarge = new AbortController()
  const connection = await remote.connect(home)
  const watch = watchSize(repository, maxBytes, tooLarge)
  try {
    await fetches.run(signal, () =>
      runGit(argumentsOf(request, repository.dir, connection.url), {
        env: connection.env,
        signal: AbortSignal.any([signal, tooLarge.signal]),
        secrets: remote.access.secrets,
        onStart,
        input: request.objects?.join('\n'),
      }),
    )
    if ((await repository.sizeBytes()) > maxBytes) tooLarge.abort()
  } catch (err) {
    if (signal.aborted) throw aborted(remote.url, signal)
    if (!tooLarge.signal.aborted) throw explained(remote.url, err)
  } finally {
    clearInterval(watch)
    await connection.release()
  }
  if (tooLarge.signal.aborted) {
    const detail = `larger than ${maxBytes} bytes (--git-max-repository-size)`
    throw retyped(TooLargeError, gitFailure(remote.url, detail))
  }
}

const always = '--quiet --no-tags --no-write-fetch-head --no-auto-maintenance --no-recurse-submodules --update-shallow'

function argumentsOf({ refspecs = [], depth, filter, objects }: FetchRequest, dir: string, url: string): string[] {
  // Single objects are wanted because they are not there: nothing has to be compared with the server.
  const settings = objects ? ['-c', 'fetch.negotiationAlgorithm=noop'] : []
  const args = ['--git-dir', dir, ...settings, 'fetch', ...always.split(' ')]
  if (objects) args.push('--stdin')
  if (depth !== undefined) args.push(`--depth=${depth}`)
  if (filter) args.push(`--filter=${filter}`)
  return [...args, '--end-of-options', url, ...refspecs]
}

/** Git has no limit of its own for what a fetch may bring. */
function watchSize(repository: BareRepository, maxBytes: number, tooLarge: AbortController): NodeJS.Timeout {
  let busy = false
  return setInterval(() => {
    if (busy) return
    busy = true
    repository
      .sizeBytes()
      .then((size) => size > maxBytes && tooLarge.abort())
      .catch(() => undefined) // it is looked at once more when the fetch has ended
      .finally(() => (busy = false))
  }, watchMs)
}

const refusals = /not our ref|unadvertised object|couldn't find remote ref|no such remote ref/i
const denials = /Authentication failed|could not read (?:Username|Password)|returned error: 40[13]|HTTP 40[13]/i
const moves = /returned error: (?:3\d\d|404)|HTTP (?:3\d\d|404)|^fatal: repository '.*' not found/i
const transport = /protocol error|unable to access|RPC failed|early EOF|hung up|disconnect|Could not resolve|timed out/i
const damages = new RegExp(
  [
    'bad (?:object|pack|signature|config|revision)|is corrupt|inflate|invalid sha1|unresolved delta|packfile|index file',
    'unable to (?:read|open object|find|parse)|missing (?:blob|tree|commit|object)|object file|not a git repository',
    'from promisor remote|did not send all|does not point to a valid|not a (?:valid|tree) object|non-monotonic index|shallow',
  ].join('|'),
  'i',
)

/** Whether git complains of what it found on disk. What the other side says does not count. */
export function isDamage(err: unknown): boolean {
  if (!(err instanceof GitError)) return false
  const own = err.message
    .split('; ')
    .filter((line) => !/^remote|^fatal: remote/.test(line))
    .join('; ')
  return damages.test(own) && !transport.test(own)
}

/** What a failure of git means: a RefusedError, MovedError or DamagedError where it is one; what is no GitError stays as it is. */
export function explained(shownUrl: string, err: unknown): unknown {
  if (!(err instanceof GitError)) return err
  const { message } = err
  if (denials.test(message)) return gitFailure(shownUrl, 'authentication required', { cause: err })
  const failure = gitFailure(shownUrl, message, { cause: err })
  if (refusals.test(message)) return retyped(RefusedError, failure)
  if (moves.test(message)) return retyped(MovedError, failure)
  return isDamage(err) ? retyped(DamagedError, failure) : failure
}

type ErrorType = new (...args: ConstructorParameters<typeof ReconcileError>) => ReconcileError

function retyped(type: ErrorType, from: ReconcileError): ReconcileError {
  return new type(from.reason, from.message, { cause: from.cause })
}
