import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Repository } from '../../git-server.ts'
import { eventually } from '../../../controllers/runtime/eventually.ts'
import { median, ratio, type Ratio, type Row } from '../report.ts'
import { assertSame, contentOfCommit, contentOfFile } from './content.ts'
import { type Cost, cloneAndArchive, costOf, costOfScript, figuresOf, rounded } from './measure.ts'
import type { Lag } from './loop-lag.ts'
import { assertServes, commitOf, serves, type Setting, urlOf, withArm, withFloor } from './setting.ts'

const main = 'refs/heads/main'
const compared = 'files by SHA-256 against git archive, of every arm and round'

/** From the creation of an object to its Artifact, with nothing kept from before. */
export async function firstArtifact(setting: Setting): Promise<Row[]> {
  const costs: Record<string, Cost[]> = { floor: [] }
  for (let round = 0; round < setting.sizes.rounds; round++) {
    costs['floor']!.push(await floorOf(setting))
    for (const command of setting.arms)
      (costs[command.name] ??= []).push(await withArm(setting, command, ({ process }) => create(setting, process.pid)))
  }
  const { arms, ratios } = summary(costs, { ofFloor: 1.2 })
  return [{ name: 'first artifact', fileSystem: setting.fileSystem, arms, ratios, compared }]
}

/** From a commit of one line to the Artifact with it, in a controller that has the commit before. */
export async function oneLineCommit(setting: Setting): Promise<Row[]> {
  const { stage, sizes } = setting
  const costs: Record<string, Cost[]> = { floor: [] }
  for (const command of setting.arms)
    costs[command.name] = await withArm(setting, command, async ({ process }) => {
      await create(setting, process.pid)
      await stage.until('Ready', () => stage.isReady('app'))
      const taken: Cost[] = []
      for (let n = 0; n < sizes.commits; n++) taken.push(await commit(setting, process.pid))
      return taken
    })
  for (let n = 0; n < sizes.commits; n++) costs['floor']!.push(await floorOf(setting))
  const { arms, ratios } = summary(costs, { ofFloor: 0.35 })
  arms['fetchIntoKeptMirror'] = figuresOf(await keptMirror(setting))
  return [{ name: 'one-line commit to Artifact', fileSystem: setting.fileSystem, arms, ratios, compared }]
}

/** How late timers of our process are while it builds its first artifact: leases and probes are as late. */
export async function eventLoopLag(setting: Setting): Promise<Row[]> {
  const { stage, repository } = setting
  const reports: Lag[] = []
  const preload = fileURLToPath(import.meta.resolve('./loop-lag.ts'))
  const onLine = (line: string) => {
    const report = /^openflux-bench: loop lag (\{.*\})$/.exec(line)?.[1]
    if (report) reports.push(JSON.parse(report) as Lag)
  }
  const lag = await withArm(
    setting,
    setting.arms[0]!,
    async ({ process }) => {
      const report = async (number: number) => {
        process.kill('SIGUSR2')
        return eventually(() => reports[number])
      }
      const tip = await commitOf(repository, main)
      await report(0) // of the start, which is not meant; the count begins anew with it
      await appear(setting, tip)
      const ofArtifact = await report(1) // before the comparison: timers of an idle process would hide the late ones
      await assertServes(stage, 'app', repository, tip)
      return ofArtifact
    },
    { env: { NODE_OPTIONS: `--import=${preload}` }, onLine },
  )
  const ours = { samples: lag.samples, p99Ms: rounded(lag.p99Ms), maxMs: rounded(lag.maxMs) }
  const ratios = [ratio('event-loop lag p99, ms', lag.p99Ms, { atMost: 100 })]
  const name = 'event-loop lag during the first artifact'
  return [{ name, fileSystem: setting.fileSystem, arms: { ours }, ratios, compared }]
}

/** Creates the object; resolves when its Artifact is visible. */
async function appear({ stage, repository }: Setting, tip: string): Promise<void> {
  await stage.create('app', { url: urlOf(stage.git, repository), ref: { branch: 'main' } })
  await stage.until('the first artifact', () => serves(stage, 'app', tip))
}

async function create(setting: Setting, pid: number): Promise<Cost> {
  const { stage, repository } = setting
  const tip = await commitOf(repository, main)
  const cost = await costOf(pid, stage.git, () => appear(setting, tip))
  await assertServes(stage, 'app', repository, tip)
  return cost
}

let changes = 0

/** Appends a line to one of the files; resolves with the new tip of `main`. */
async function changeLine(repository: Repository): Promise<string> {
  const paths = (await repository.git(['ls-tree', '-r', '--name-only', main])).trim().split('\n')
  const path = paths[(7 * ++changes) % paths.length]!
  const before = await repository.git(['cat-file', 'blob', `${main}:${path}`])
  return repository.commit({ [path]: `${before}# one more line ${changes}\n` }, 'one line')
}

async function commit({ stage, repository }: Setting, pid: number): Promise<Cost> {
  await stage.until('Ready', () => stage.isReady('app'))
  const tip = await changeLine(repository)
  const cost = await costOf(pid, stage.git, async () => {
    await stage.poke('app')
    await stage.until('the artifact of a commit', () => serves(stage, 'app', tip))
  })
  await assertServes(stage, 'app', repository, tip)
  return cost
}

/** What native git needs for the part that is upstream's: a fetch into a bare repository that has the commit before. */
async function keptMirror({ stage, repository, sizes, folder, cpus }: Setting): Promise<Cost[]> {
  const place = { git: stage.git, cpus }
  const mirror = await mkdtemp(join(folder, 'mirror-'))
  const fetch = `git -C "$2/repository.git" fetch --quiet --depth 1 -- "$1" +${main}:${main}`
  const args = [urlOf(stage.git, repository), mirror]
  try {
    await costOfScript(cloneAndArchive, args, place)
    const costs: Cost[] = []
    for (let n = 0; n < sizes.rounds; n++) {
      await changeLine(repository)
      costs.push(await costOfScript(fetch, args, place))
    }
    return costs
  } finally {
    await rm(mirror, { recursive: true, force: true })
  }
}

/** What native git and gzip need for an archive of `main`, which is compared with the commit. */
export async function floorOf(setting: Setting): Promise<Cost> {
  const { repository } = setting
  const tip = await commitOf(repository, main)
  return withFloor(setting, cloneAndArchive, {
    repository,
    async check(folder) {
      const actual = await contentOfFile(join(folder, 'archive.tar.gz'))
      assertSame(actual, await contentOfCommit(repository.dir, tip), 'floor')
    },
  })
}

/** The figures of each arm, and ours held against the floor's and the peer's. */
function summary(costs: Record<string, Cost[]>, { ofFloor }: { ofFloor: number }): Pick<Row, 'arms' | 'ratios'> {
  const middle = (arm: string, key: keyof Cost) => median((costs[arm] ?? []).map((cost) => cost[key]))
  const compare = (name: string, key: keyof Cost, arm: string, atMost?: number): Ratio =>
    ratio(`${name}, ours/${arm}`, middle('ours', key) / middle(arm, key), atMost === undefined ? {} : { atMost })
  const ratios = [compare('wall', 'wallMs', 'floor', ofFloor), compare('CPU', 'cpuSeconds', 'floor')]
  if (costs['peer'])
    ratios.push(
      compare('wall', 'wallMs', 'peer'),
      compare('CPU', 'cpuSeconds', 'peer'),
      compare('memory', 'peakMemoryBytes', 'peer'),
    )
  return { arms: Object.fromEntries(Object.entries(costs).map(([arm, taken]) => [arm, figuresOf(taken)])), ratios }
}
