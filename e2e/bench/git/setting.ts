import { mkdtemp, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import type { GitServer, Repository } from '../../git-server.ts'
import { note } from '../../tools/cache.ts'
import { startArm, type Arm, type ArmCommand } from './arm.ts'
import { assertSame, contentOfArtifact, contentOfCommit } from './content.ts'
import { type Cost, costOfScript } from './measure.ts'
import type { Stage } from './stage.ts'

/** How large everything is. */
export interface Sizes {
  polls: number
  commits: number
  many: number
  large: number
  rounds: number
}

/** What a row works with, on one file system. */
export interface Setting {
  stage: Stage
  /** Ours first, then the peer if there is one. */
  arms: readonly ArmCommand[]
  sizes: Sizes
  /** A folder on the file system under test. */
  folder: string
  fileSystem: string
  /** Processors for whoever is measured. */
  cpus: string | undefined
  /** The repository with all its refs, whose `main` may be moved. */
  repository: Repository
  /** As many large repositories without common content as `sizes.large`. */
  distinct: readonly Repository[]
}

/** Starts a controller with an empty storage, lets `work` measure it, and takes its objects and files away again. */
export async function withArm<R>(
  setting: Setting,
  command: ArmCommand,
  work: (arm: Arm) => Promise<R>,
  options: { env?: NodeJS.ProcessEnv; onLine?: (line: string) => void } = {},
): Promise<R> {
  const { stage, cpus } = setting
  const folder = await mkdtemp(join(setting.folder, `${command.name}-`))
  try {
    await using arm = await startArm(command, { kubeconfig: stage.controlPlane.kubeconfig, folder, cpus, ...options })
    await stage.enter()
    const ended = arm.process.exited.then(() => {
      throw new Error(`${command.name} has ended:\n${arm.process.logs(20)}`)
    })
    ended.catch(() => undefined) // it ends by our signal, once nobody waits for its work
    note(`  ${command.name} is ready`)
    const result = await Promise.race([work(arm), ended])
    await Promise.race([stage.leave(), ended])
    return result
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Runs a script of native commands with the URL of a repository as `$1` and an empty folder as `$2`. */
export async function withFloor(
  setting: Setting,
  script: string,
  { repository, git = setting.stage.git, check }: FloorOptions,
): Promise<Cost> {
  const folder = await mkdtemp(join(setting.folder, 'floor-'))
  try {
    const args = [urlOf(git, repository), folder]
    const cost = await costOfScript(script, args, { git, cpus: setting.cpus })
    await check?.(folder)
    return cost
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

interface FloorOptions {
  repository: Repository
  /** Who serves it, unless it is the one that knows version 2. */
  git?: GitServer
  /** Looks at what the script has made in its folder. */
  check?: (folder: string) => Promise<void>
}

/** Where a repository is served. */
export function urlOf(git: GitServer, repository: Repository): string {
  return `${git.url}/${basename(repository.dir)}`
}

/** The commit that a ref of a repository leads to. */
export async function commitOf(repository: Repository, ref: string): Promise<string> {
  return (await repository.git(['rev-parse', '--verify', `${ref}^{commit}`])).trim()
}

/** Throws unless what an object offers is just what the commit holds. Resolves with the number of files. */
export async function assertServes(
  stage: Stage,
  name: string,
  repository: Repository,
  commit: string,
): Promise<number> {
  const served = stage.served(name)
  if (!served?.revision.endsWith(`@sha1:${commit}`)) throw new Error(`${name} is at ${served?.revision}, not ${commit}`)
  const expected = await contentOfCommit(repository.dir, commit)
  assertSame(await contentOfArtifact(served), expected, name)
  return expected.size
}

/** Whether an object offers that commit. */
export function serves(stage: Stage, name: string, commit: string): boolean {
  return Boolean(stage.served(name)?.revision.endsWith(`@sha1:${commit}`))
}
