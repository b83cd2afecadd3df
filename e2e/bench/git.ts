// The benchmark of the git controller: `npm run bench -- git`. What each row is, and how it is measured, is in README.md.
import { execFile } from 'node:child_process'
import { mkdir, rm, stat } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Option } from 'commander'
import type { Repository } from '../git-server.ts'
import { cacheFolder, note } from '../tools/cache.ts'
import { temporaryFolder } from '../tools/temporary.ts'
import type { ArmCommand } from './git/arm.ts'
import { eventLoopLag, firstArtifact, oneLineCommit } from './git/artifacts.ts'
import { buildOurs } from './git/build.ts'
import { idle, largeAtOnce, manyObjects } from './git/many.ts'
import { polls } from './git/polls.ts'
import { copyRepository, generatedRepository, type RepositoryShape } from './git/repositories.ts'
import type { Setting, Sizes } from './git/setting.ts'
import { Stage } from './git/stage.ts'
import { fileSystemOf, type Report, type Row } from './report.ts'

/** What the command line says. */
export interface GitBenchOptions {
  peer?: string
  peerCrds?: string
  storage?: 'tmpfs' | 'disk' | 'both'
  rows?: string
  quick?: boolean
  pin?: boolean
}

export const flags = [
  new Option('--peer-crds <folder>', 'CRDs that the peer wants besides ours'),
  new Option('--storage <kind>', 'where the arms store').choices(['tmpfs', 'disk', 'both']).default('both'),
  new Option('--rows <numbers>', 'only these rows, e.g. 1,3'),
  new Option('--quick', 'small repositories and few repetitions, to see that the benchmark works'),
  new Option('--pin', 'the measured processes on the first processor, everything else on the others'),
]

/** Controllers of both arms work on as many objects at once. */
const concurrent = 10
const tmpfs = '/dev/shm'
const full = { polls: 100, commits: 10, many: 100, large: 10, rounds: 3 } satisfies Sizes
const small = { polls: 3, commits: 1, many: 4, large: 2, rounds: 1 } satisfies Sizes
const fullShape: RepositoryShape = { seed: 1, files: 5500, bytes: 70e6, refs: 18_500 }
const smallShape: RepositoryShape = { seed: 1, files: 60, bytes: 500_000, refs: 200 }

/** In the order of the numbers that `--rows` takes, from 1. */
const allRows: ((setting: Setting) => Promise<Row[]>)[] = [
  polls,
  firstArtifact,
  oneLineCommit,
  manyObjects,
  largeAtOnce,
  eventLoopLag,
  idle,
]

/** Runs the chosen rows on each file system. Throws when an arm fails or gives other files than the commit has. */
export async function run(options: GitBenchOptions): Promise<Report> {
  const chosen = chosenRows(options.rows)
  const sizes = options.quick ? small : full
  const shape = options.quick ? smallShape : fullShape
  const work = await temporaryFolder()
  try {
    const root = join(work, 'repositories')
    const repository = await copyRepository(await generatedRepository(shape), join(root, 'large.git'))
    const distinct = chosen.includes(5) ? await distinctRepositories(shape, sizes.large, root) : []
    const ours = `${await buildOurs(join(work, 'ours'))} --concurrent=${concurrent}`
    const arms: ArmCommand[] = [{ name: 'ours', command: ours }]
    if (options.peer) arms.push({ name: 'peer', command: options.peer })
    await using stage = await Stage.open(root, options.peer ? options.peerCrds : undefined)
    const cpus = options.pin ? await pinOthers(stage) : undefined
    const rows: Row[] = []
    for (const place of await places(options.storage ?? 'both')) {
      const folder = await temporaryFolder(place)
      const fileSystem = await fileSystemOf(folder)
      const setting = { stage, arms, sizes, folder, fileSystem, cpus, repository, distinct }
      try {
        for (const number of chosen) rows.push(...(await measured(number, setting)))
      } finally {
        await rm(folder, { recursive: true, force: true })
      }
    }
    return { versions: await versions(), setting: { ...options, concurrent, sizes, shape, cpus, arms }, rows }
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}

async function measured(number: number, setting: Setting): Promise<Row[]> {
  const startedAt = performance.now()
  const rows = await allRows[number - 1]!(setting)
  note(`row ${number} on ${setting.fileSystem}: ${((performance.now() - startedAt) / 1000).toFixed(1)} s`)
  for (const row of rows) note(`  ${row.name}: ${JSON.stringify(row.ratios)}`)
  return rows
}

function chosenRows(text: string | undefined): number[] {
  const numbers = text?.split(',').map(Number) ?? allRows.map((_, i) => i + 1)
  const wrong = numbers.find((number) => !allRows[number - 1])
  if (wrong !== undefined) throw new Error(`--rows: there is no row ${wrong}, only 1 to ${allRows.length}`)
  return numbers
}

async function distinctRepositories(shape: RepositoryShape, count: number, root: string): Promise<Repository[]> {
  const repositories: Repository[] = []
  for (let n = 0; n < count; n++) {
    const generated = await generatedRepository({ ...shape, seed: shape.seed + 1 + n, refs: 200 })
    repositories.push(await copyRepository(generated, join(root, `distinct-${n}.git`)))
  }
  return repositories
}

/** A folder on each wanted kind of file system; made if it is not there. */
async function places(storage: 'tmpfs' | 'disk' | 'both'): Promise<string[]> {
  const hasTmpfs = await stat(tmpfs).then(
    () => true,
    () => false, // not Linux
  )
  if (storage === 'tmpfs' && !hasTmpfs) throw new Error(`--storage tmpfs: there is no ${tmpfs}`)
  // Not the folder for temporary files, which often is no disk.
  const disk = cacheFolder('bench')
  if (storage !== 'tmpfs') await mkdir(disk, { recursive: true })
  return [...(storage !== 'disk' && hasTmpfs ? [tmpfs] : []), ...(storage !== 'tmpfs' ? [disk] : [])]
}

const execute = promisify(execFile)

/** Moves this process, which also serves Git, and the API server off the first processor; resolves with that processor. */
async function pinOthers(stage: Stage): Promise<string> {
  const processors = availableParallelism()
  if (processors < 2) throw new Error('--pin needs two processors')
  for (const pid of [process.pid, ...stage.controlPlane.pids])
    await execute('taskset', ['--all-tasks', '--cpu-list', '--pid', `1-${processors - 1}`, String(pid)])
  return '0'
}

async function versions(): Promise<Record<string, string>> {
  const { stdout } = await execute('git', ['--version'])
  const gzip = await execute('gzip', ['--version'])
  return { git: stdout.trim(), gzip: gzip.stdout.split('\n')[0]! }
}
