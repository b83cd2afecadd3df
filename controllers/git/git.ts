import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { sanitize } from './failure.ts'
import { sshProblem } from './ssh/problem.ts'

/** A git process that failed. The message is safe to show. */
export class GitError extends Error {
  /** Null when a signal ended it. */
  readonly exitCode: number | null
  constructor(message: string, exitCode: number | null) {
    super(message)
    this.name = 'GitError'
    this.exitCode = exitCode
  }
}

export interface GitOptions {
  env: Record<string, string>
  signal: AbortSignal
  /** Texts that must not appear in an error's message. */
  secrets?: readonly string[]
  /** Called with the id of the process group as soon as it exists. */
  onStart?: ((group: number) => void) | undefined
}

/** A git process under way, in a process group of its own. */
export interface GitProcess {
  stdin: Writable
  stdout: Readable
  /** Settles when the whole group has ended; rejects with a GitError, or with the signal's reason. */
  ended: Promise<void>
  kill(): void
}

const maxStderrBytes = 16 * 1024
const graceMs = 1_000

/**
 * Starts git. The arguments must not be built from text of users except behind `--end-of-options` or `--`. When `signal` aborts, the whole process group is
 * asked to end, and after a second made to.
 */
export function startGit(args: readonly string[], options: GitOptions): GitProcess {
  return startProgram('git', args, options)
}

/** The same for another program that git stands on, like `ssh`. */
export function startProgram(program: string, args: readonly string[], options: GitOptions): GitProcess {
  const { env, signal, secrets, onStart } = options
  signal.throwIfAborted()
  // A folder that is always there: the mirrors may be removed with the storage they are in.
  const child = spawn(program, args, { env, cwd: '/', detached: true, stdio: 'pipe' })
  if (child.pid !== undefined) onStart?.(child.pid)
  child.stdin.on('error', () => undefined) // a process that ends early says why on its standard error
  const stderr = tail(child.stderr)
  let insist: NodeJS.Timeout | undefined
  const kill = () => {
    if (insist || child.pid === undefined) return
    const group = child.pid
    signalGroup(group, 'SIGTERM')
    insist = setTimeout(() => signalGroup(group, 'SIGKILL'), graceMs)
    // Nobody wants the rest, and the process counts as running until its output has been read.
    child.stdout.destroy()
  }
  signal.addEventListener('abort', kill, { once: true })
  const ended = closed(child).then(({ code, failure }) => {
    signal.removeEventListener('abort', kill)
    clearTimeout(insist)
    if (insist && child.pid !== undefined) signalGroup(child.pid, 'SIGKILL')
    if (signal.aborted) throw signal.reason
    if (failure || code !== 0) {
      const said = sanitize(relevant(stderr()), secrets)
      throw new GitError(said || failure?.message || `${program} ended with code ${code}`, code)
    }
  })
  ended.catch(() => undefined) // whoever awaits it hears of it; who only streams hears of it from the stream
  return { stdin: child.stdin, stdout: child.stdout, ended, kill }
}

export type RunOptions = GitOptions & { maxBytes?: number; input?: string | Buffer | undefined }

/** Runs git to its end; resolves with its standard output, which must not be longer than `maxBytes`. */
export async function runGit(args: readonly string[], options: RunOptions): Promise<Buffer> {
  return await runProgram('git', args, options)
}

/** The same for another program that git stands on. */
export async function runProgram(program: string, args: readonly string[], options: RunOptions): Promise<Buffer> {
  const { maxBytes = 1024 * 1024, input } = options
  const running = startProgram(program, args, options)
  running.stdin.end(input)
  const chunks: Buffer[] = []
  let received = 0
  try {
    for await (const chunk of running.stdout as AsyncIterable<Buffer>) {
      received += chunk.length
      if (received > maxBytes) throw new GitError(`${program} wrote more than ${maxBytes} bytes`, null)
      chunks.push(chunk)
    }
  } catch (err) {
    running.kill()
    await running.ended.catch(() => undefined) // it ended because it was killed
    options.signal.throwIfAborted()
    throw err
  }
  await running.ended
  return Buffer.concat(chunks)
}

/** All of a group hold the same standard error: when that is closed, none of them is left. */
function closed(child: ChildProcessWithoutNullStreams): Promise<{ code: number | null; failure?: Error }> {
  return new Promise((resolve) => {
    child.on('close', (code) => resolve({ code }))
    child.on('error', (failure) => {
      if (child.pid === undefined) resolve({ code: null, failure })
    })
  })
}

/** Does nothing where the group no longer exists. */
export function signalGroup(group: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-group, signal)
  } catch {
    // ESRCH; a group of our own cannot be anyone else's (EPERM)
  }
}

/** The end of what a process says, where its reason is. */
function tail(stream: Readable): () => string {
  let kept = Buffer.alloc(0)
  stream.on('data', (chunk: Buffer) => {
    kept = Buffer.concat([kept, chunk.subarray(-maxStderrBytes)]).subarray(-maxStderrBytes)
  })
  return () => kept.toString()
}

/** The lines that tell what went wrong, without progress and advice. */
function relevant(stderr: string): string {
  const problem = sshProblem(stderr)
  if (problem) return problem
  const [, asked, limit] = /^(?:fatal|error): attempting to allocate (\d+) over limit (\d+)$/m.exec(stderr) ?? []
  if (limit)
    return `an object takes ${asked} bytes of memory, more than the ${limit} that git may use (GIT_ALLOC_LIMIT)`
  const lines = stderr.split(/[\r\n]+/).filter((line) => /^(?:fatal|error|remote error): |^remote: ./.test(line))
  return (lines.length > 0 ? lines : [stderr]).join('; ')
}
