import { execFile } from 'node:child_process'
import { open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { isolated } from '../../git-repository.ts'
import type { GitServer } from '../../git-server.ts'
import { startProcess } from '../../tools/process.ts'
import { temporaryFolder } from '../../tools/temporary.ts'
import { watchTree } from '../process-tree.ts'
import { median, type Figures } from '../report.ts'

/** What one piece of work has cost. Bytes and requests are those at the Git server, headers included, in both directions. */
export interface Cost {
  wallMs: number
  /** Of the measured processes and all they have started. */
  cpuSeconds: number
  /** The highest sum over the process tree; what processes of one program share counts once. */
  peakMemoryBytes: number
  upstreamBytes: number
  upstreamRequests: number
}

/** Measures what a living process tree does until `work` resolves. */
export async function costOf(pid: number, git: GitServer, work: () => Promise<void>): Promise<Cost> {
  git.reset()
  const watch = watchTree(pid)
  const startedAt = performance.now()
  await work()
  const wallMs = performance.now() - startedAt
  const { cpuSeconds, peakMemoryBytes } = watch.stop()
  const { requests, bytesIn, bytesOut } = git.requests()
  return {
    wallMs,
    cpuSeconds,
    peakMemoryBytes,
    upstreamBytes: bytesIn + bytesOut,
    upstreamRequests: requests,
  }
}

const run = promisify(execFile)
const doneMark = 'openflux-bench: done'

/** Measures a shell script that takes paths and URLs as `$1`, `$2`, …: native git, without anybody's configuration. Throws with its output when it fails. */
export async function costOfScript(
  script: string,
  args: readonly string[],
  { git, cpus }: { git: GitServer; cpus: string | undefined },
): Promise<Cost> {
  const folder = await temporaryFolder()
  const start = join(folder, 'start')
  await run('mkfifo', [start])
  // It begins when it is told to, as it must not be ahead of whoever measures; and it stays, so that what its children have used can still be read from it.
  const command = `set -e\nread -r _ < "$0"\n${script}\necho '${doneMark}'\nexec sleep 600`
  const pinned = cpus ? ['taskset', '-c', cpus] : []
  const [program, ...rest] = [...pinned, '/bin/sh', '-c', command, start, ...args]
  const finished = Promise.withResolvers<void>()
  const child = await startProcess({
    name: 'floor',
    command: program!,
    args: rest,
    env: { PATH: process.env['PATH'], LC_ALL: 'C', ...isolated },
    onLine: (line) => void (line === doneMark && finished.resolve()),
  })
  const failed = child.exited.then(() => {
    throw new Error(`the floor's script failed:\n${child.logs(20)}`)
  })
  failed.catch(() => undefined) // it ends by our signal, once nobody waits for it
  const gate = await open(start, 'r+') // which waits for nobody at the other end (fifo(7))
  try {
    return await costOf(child.pid, git, async () => {
      await gate.write('\n')
      await Promise.race([finished.promise, failed])
    })
  } finally {
    await child.stop()
    await gate.close()
    await rm(folder, { recursive: true, force: true })
  }
}

/** The clone and the archive that a new artifact cannot do without, by native git and gzip; into the folder `$2`. */
export const cloneAndArchive = `git clone --quiet --bare --depth 1 --single-branch --branch main -- "$1" "$2/repository.git"
git -C "$2/repository.git" archive --format=tar HEAD | gzip -6 > "$2/archive.tar.gz"`

/** Medians of several runs; of the wall time also the least and the most, of memory the most. */
export function figuresOf(costs: readonly Cost[]): Figures {
  const all = (key: keyof Cost) => costs.map((cost) => cost[key])
  return {
    rounds: costs.length,
    wallMs: rounded(median(all('wallMs'))),
    wallRangeMs: [rounded(Math.min(...all('wallMs'))), rounded(Math.max(...all('wallMs')))],
    cpuSeconds: rounded(median(all('cpuSeconds')), 3),
    peakMemoryMiB: rounded(Math.max(...all('peakMemoryBytes')) / 2 ** 20),
    upstreamBytes: Math.round(median(all('upstreamBytes'))),
    upstreamRequests: median(all('upstreamRequests')),
  }
}

/** A number with that many digits behind the point, one unless told. */
export function rounded(value: number, digits = 1): number {
  return Number(value.toFixed(digits))
}

/** Bytes on disk below folders; a file with several names counts once. */
export async function diskBytes(...folders: string[]): Promise<number> {
  const { stdout } = await run('du', ['--summarize', '--total', '--block-size=1', '--', ...folders])
  return Number(/^(\d+)\ttotal$/m.exec(stdout)?.[1] ?? NaN)
}
