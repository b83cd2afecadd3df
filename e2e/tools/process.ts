import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf } from './errors.ts'

/** What to run; `env` replaces the environment (default: this process's own). */
export interface ProcessOptions {
  name: string
  command: string
  args?: readonly string[]
  env?: NodeJS.ProcessEnv | undefined
  cwd?: string | undefined
  /** Called with every line of standard output and standard error as it comes. */
  onLine?: ((line: string) => void) | undefined
}

/** How a process ended: an exit code, or the signal that killed it. */
export interface ProcessExit {
  code: number | null
  signal: NodeJS.Signals | null
}

/** A child that is killed, with all it has started, as soon as this process is gone, however this process ends. */
export interface SupervisedProcess extends AsyncDisposable {
  readonly name: string
  /** The process itself, no wrapper: signals reach it directly. It leads its own process group. */
  readonly pid: number
  /** Resolves when it has ended and its output is read; never rejects. */
  readonly exited: Promise<ProcessExit>
  readonly running: boolean
  /** The last lines of its output (at most 1,000 are kept, each cut at 4,000 characters). */
  logs(lines?: number): string
  /** Resolves with the first line that matches, also an earlier one. Throws when it exits or `timeoutMs` passes first. */
  waitForLine(pattern: RegExp, timeoutMs?: number): Promise<RegExpMatchArray>
  /** Polls until `probe` is true. Throws, with the end of the log, when it exits or `timeoutMs` passes first. */
  waitUntil(probe: () => boolean | Promise<boolean>, timeoutMs?: number): Promise<void>
  /** Sends a signal and does not wait; an ended process is left alone. */
  kill(signal: NodeJS.Signals): void
  /** SIGTERM, then SIGKILL for the whole group after `graceMs` (default 5,000). */
  stop(graceMs?: number): Promise<ProcessExit>
}

// Started in a process group of its own, so that Ctrl-C in a terminal reaches the parent alone, which then stops things in
// order. Nobody writes to descriptor 3: it ends when the parent does, even by SIGKILL. The watcher is a member of the group
// that it kills, so the number cannot have passed to strangers by then.
const supervisor = '(read -r _ <&3; kill -s KILL -- "-$$") >/dev/null 2>&1 & exec "$@" 3<&-'

const maxLines = 1000
const maxLineChars = 4000
const pollMs = 50

/** Starts a process. Throws when the command cannot be started at all; a missing program ends with code 127. */
export async function startProcess(options: ProcessOptions): Promise<SupervisedProcess> {
  const { name, command, args = [], env, cwd, onLine } = options
  const child = spawn('/bin/sh', ['-c', supervisor, name, command, ...args], {
    env,
    cwd,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
  })
  child.stdio[3]?.on('error', () => {}) // the other end closing first is no news: `exit` tells
  const log = new LineBuffer(onLine)
  for (const output of [child.stdout, child.stderr]) if (output) log.read(output)
  const exited = whenExited(child)
  await once(child, 'spawn')
  return new Supervised(name, child.pid!, log, exited)
}

async function whenExited(child: ChildProcess): Promise<ProcessExit> {
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const exit = await new Promise<ProcessExit>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }))
    child.once('error', () => resolve({ code: 127, signal: null }))
  })
  child.stdio[3]?.destroy()
  // A grandchild that left the group may hold the output open for ever.
  await Promise.race([closed, sleep(1000, undefined, { ref: false })])
  return exit
}

class LineBuffer {
  readonly lines: string[] = []
  readonly #listeners = new Set<(line: string) => void>()

  constructor(onLine?: (line: string) => void) {
    if (onLine) this.#listeners.add(onLine)
  }

  read(stream: Readable): void {
    createInterface({ input: stream }).on('line', (line) => {
      const cut = line.slice(0, maxLineChars)
      this.lines.push(cut)
      if (this.lines.length > maxLines) this.lines.shift()
      for (const listener of this.#listeners) listener(cut)
    })
  }

  subscribe(listener: (line: string) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }
}

class Supervised implements SupervisedProcess {
  readonly name: string
  readonly pid: number
  readonly exited: Promise<ProcessExit>
  readonly #log: LineBuffer
  #exit: ProcessExit | undefined

  constructor(name: string, pid: number, log: LineBuffer, exited: Promise<ProcessExit>) {
    this.name = name
    this.pid = pid
    this.#log = log
    this.exited = exited.then((exit) => (this.#exit = exit))
  }

  get running(): boolean {
    return this.#exit === undefined
  }

  logs(lines = maxLines): string {
    return this.#log.lines.slice(-lines).join('\n')
  }

  async waitForLine(pattern: RegExp, timeoutMs = 30_000): Promise<RegExpMatchArray> {
    let found: RegExpMatchArray | null = null
    const look = (line: string) => void (found ??= line.match(pattern))
    this.#log.lines.forEach(look)
    const unsubscribe = this.#log.subscribe(look)
    try {
      await this.waitUntil(() => found !== null, timeoutMs, `a line matching ${String(pattern)}`)
    } finally {
      unsubscribe()
    }
    return found!
  }

  async waitUntil(probe: () => boolean | Promise<boolean>, timeoutMs = 30_000, what = 'readiness'): Promise<void> {
    const deadline = performance.now() + timeoutMs
    for (;;) {
      // Asked before the probe, so that what the process did last still counts.
      const exit = this.#exit
      if (await probe()) return
      if (exit) throw this.#failure(`ended with ${exit.signal ?? `code ${exit.code}`} before ${what}`)
      if (performance.now() > deadline) throw this.#failure(`did not reach ${what} within ${timeoutMs} ms`)
      await sleep(pollMs)
    }
  }

  kill(signal: NodeJS.Signals): void {
    if (this.running) this.#send(this.pid, signal)
  }

  async stop(graceMs = 5000): Promise<ProcessExit> {
    this.kill('SIGTERM')
    await Promise.race([this.exited, sleep(graceMs, undefined, { ref: false })])
    if (this.running) this.#send(-this.pid, 'SIGKILL')
    return this.exited
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }

  #send(target: number, signal: NodeJS.Signals): void {
    try {
      process.kill(target, signal)
    } catch (err) {
      if (codeOf(err) !== 'ESRCH') throw err // it ended a moment ago
    }
  }

  #failure(what: string): Error {
    return new Error(`${this.name} ${what}; the end of its output:\n${this.logs(20) || '(none)'}`)
  }
}
