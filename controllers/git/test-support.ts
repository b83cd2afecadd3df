import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { pino } from 'pino'
import { startGitServer, type GitServer } from '../../e2e/git-server.ts'
import type { Entries } from '../artifact/entry.ts'
import { Client } from '../runtime/client.ts'
import { ReconcileError } from '../runtime/errors.ts'
import type { SourceContext } from '../source/source.ts'
import { makeMirrors, type Mirrors, type MirrorsOptions } from './mirror/mirrors.ts'
import type { GitRepository, GitRepositorySpec } from './types.ts'

/** A real Git server, and a cache whose git processes are written down. For tests. */
export interface Stage {
  folder: string
  cacheFolder: string
  server: GitServer
  mirrors: Mirrors
  warnings: string[]
  /** Mirrors on the same cache folder, as another process would have them. */
  open(options?: Partial<MirrorsOptions>): Mirrors
  /** The arguments of every git process that the mirrors have started, one line each. */
  processes(): Promise<string[]>
  /** The whole environment of the last of them. */
  lastEnvironment(): Promise<string>
  /** Runs any program; gives its standard output. */
  run(program: string, args: string[]): Promise<string>
  close(): Promise<void>
}

/** Starts a server of its own. */
export async function openStage(options: Partial<MirrorsOptions> = {}): Promise<Stage> {
  const folder = await mkdtemp(join(tmpdir(), 'openflux-git-'))
  const cacheFolder = join(folder, 'cache')
  const path = await recordingGit(folder)
  const server = await startGitServer()
  const warnings: string[] = []
  const open = (more: Partial<MirrorsOptions> = {}) =>
    makeMirrors({ cacheFolder, path, warn: (message) => warnings.push(message), ...options, ...more })
  const read = (name: string) => readFile(join(folder, name), 'utf8')
  return {
    folder,
    cacheFolder,
    server,
    warnings,
    open,
    mirrors: open(),
    processes: async () => (await read('argv')).split('\n').filter(Boolean),
    lastEnvironment: () => read('environment'),
    run: async (program, args) => (await promisify(execFile)(program, args)).stdout,
    close: async () => {
      await server.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** A `git` that writes down how it was called and then is the real one; gives the PATH to use. */
async function recordingGit(folder: string): Promise<string> {
  const real = (await promisify(execFile)('sh', ['-c', 'command -v git'])).stdout.trim()
  const bin = join(folder, 'bin')
  await mkdir(bin)
  await writeFile(join(folder, 'argv'), '')
  const script = `#!/bin/sh\nenv > '${folder}/environment'\nline=$(echo "$@" | tr '\\n' ' ')\n`
  // In one write: several processes may start at once.
  const note = `printf '%s\\n' "$line" >> '${folder}/argv'\n`
  await writeFile(join(bin, 'git'), `${script}${note}exec '${real}' "$@"\n`)
  await chmod(join(bin, 'git'), 0o755)
  return `${bin}:${process.env['PATH']}`
}

/** What a pass gets, with Secrets from `secrets` (by name, in any namespace). */
export function contextOf(
  signal: AbortSignal = AbortSignal.timeout(60_000),
  secrets: Record<string, Record<string, string>> = {},
): SourceContext {
  const read = async (name: string) => {
    const data = secrets[name]
    if (!data)
      throw new ReconcileError('AuthenticationFailed', `failed to get secret 'ns/${name}': secrets "${name}" not found`)
    return Object.fromEntries(Object.entries(data).map(([key, value]) => [key, Buffer.from(value)]))
  }
  return {
    client: Object.create(Client.prototype) as Client,
    events: { emit: () => undefined },
    log: pino({ level: 'silent' }),
    signal,
    secrets: { read },
    artifacts: { of: () => undefined, open: () => assert.fail('no artifact is included') },
  }
}

/** An object as it comes from the API server. */
export function objectOf(spec: Partial<GitRepositorySpec> & { url: string }): GitRepository {
  return { metadata: { name: 'app', namespace: 'ns' }, spec: { interval: '1m', ...spec } }
}

/** Reads all entries in their order: the content by path. */
export async function readAll(entries: Entries): Promise<Record<string, string>> {
  const files: Record<string, string> = {}
  for await (const entry of entries) files[entry.path] = (await wholeOf(await entry.open())).toString()
  return files
}

export async function wholeOf(body: Buffer | Readable): Promise<Buffer> {
  return Buffer.isBuffer(body) ? body : await buffer(body)
}

/** The ReconcileError that `work` fails with. */
export async function failureOf(work: Promise<unknown>): Promise<ReconcileError> {
  const err = await work.then(
    () => assert.fail('did not fail'),
    (e: unknown) => e,
  )
  assert.ok(err instanceof ReconcileError, String(err))
  return err
}

/** The ids of the processes of a group that still run. */
export async function processesOf(group: number): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const states = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '')))
  const fields = states.map((text) => text.slice(text.lastIndexOf(')') + 2).split(' '))
  return pids.filter((_, i) => fields[i]![2] === String(group) && fields[i]![0] !== 'Z')
}
