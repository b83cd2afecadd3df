import { cpuUsage } from 'node:process'
import { setTimeout as delay } from 'node:timers/promises'
import { GitRepositoryKind } from '../../../controllers/git/types.ts'
import type { Repository } from '../../git-server.ts'
import { watchTree } from '../process-tree.ts'
import { type Figures, ratio, type Ratio, type Row } from '../report.ts'
import type { Arm } from './arm.ts'
import { floorOf } from './artifacts.ts'
import { type Cost, costOf, diskBytes, figuresOf, rounded } from './measure.ts'
import { assertServes, commitOf, type Setting, urlOf, withArm } from './setting.ts'

const mib = 2 ** 20

/** An arm's cost, and what its storage took. */
interface Stored {
  cost: Cost
  diskBytes: number
}

/** Many objects on one repository, all created at once. */
export async function manyObjects(setting: Setting): Promise<Row[]> {
  const { sizes, repository } = setting
  const stored: Record<string, Stored & { objects: number }> = {}
  for (const command of setting.arms) {
    const one = await withArm(setting, command, (arm) => storeAll(setting, arm, [repository]))
    const all = await withArm(setting, command, (arm) => storeAll(setting, arm, repeated(repository, sizes.many)))
    stored[command.name] = { ...all, objects: all.diskBytes / one.diskBytes }
  }
  const floor = await floorOfMany(setting)
  const arms: Record<string, Figures> = { floor: figuresOf([floor]) }
  for (const [name, { cost, diskBytes: bytes, objects }] of Object.entries(stored))
    arms[name] = { ...figuresOf([cost]), diskMiB: rounded(bytes / mib), diskOfOneObject: rounded(objects, 2) }
  const { ours, peer } = stored
  const ratios = [
    ratio('disk, in units of one object', ours!.objects, { atMost: 1.3 }),
    ratio('wall, ours/floor', ours!.cost.wallMs / floor.wallMs),
    ratio('CPU, ours/floor', ours!.cost.cpuSeconds / floor.cpuSeconds),
    ratio('upstream bytes, ours/floor', ours!.cost.upstreamBytes / floor.upstreamBytes),
    ...(peer ? againstPeer(ours!.cost, peer.cost, { wall: 0.083, cpu: 0.067, bytes: 0.01 }) : []),
  ]
  return [{ ...named(setting, `${sizes.many} objects on one repository`), arms, ratios }]
}

/** A few objects at once, all on one large repository, then each on its own. */
export async function largeAtOnce(setting: Setting): Promise<Row[]> {
  const { sizes, repository, distinct } = setting
  const cases = [
    { name: 'one and the same', repositories: repeated(repository, sizes.large), mostMib: 200, mostOfPeer: 0.125 },
    { name: 'distinct', repositories: distinct, mostMib: 300, mostOfPeer: 0.5 },
  ]
  const rows: Row[] = []
  for (const { name, repositories, mostMib, mostOfPeer } of cases) {
    const costs: Record<string, Cost> = {}
    for (const command of setting.arms)
      costs[command.name] = (await withArm(setting, command, (arm) => storeAll(setting, arm, repositories))).cost
    const { ours, peer } = costs
    rows.push({
      ...named(setting, `${repositories.length} objects on large repositories at once, ${name}`),
      arms: Object.fromEntries(Object.entries(costs).map(([arm, cost]) => [arm, figuresOf([cost])])),
      ratios: [
        ratio('peak memory, MiB', ours!.peakMemoryBytes / mib, { atMost: mostMib }),
        ...(peer ? againstPeer(ours!, peer, { wall: mostOfPeer }) : []),
      ],
    })
  }
  return rows
}

/** A controller that has nothing to do. */
export async function idle(setting: Setting): Promise<Row[]> {
  const arms: Record<string, Figures> = {}
  for (const command of setting.arms)
    arms[command.name] = await withArm(setting, command, async ({ process }) => {
      await delay(settleMs)
      const { peakMemoryBytes } = watchTree(process.pid).stop()
      return { memoryMiB: rounded(peakMemoryBytes / mib) }
    })
  const ratios = [ratio('memory, MiB', Number(arms['ours']!['memoryMiB']), { atMost: 110 })]
  return [{ name: 'idle', fileSystem: setting.fileSystem, arms, ratios, compared: 'nothing is made' }]
}

/** What a start has left behind is given back, or not, within this time. */
const settleMs = 5000

function named({ fileSystem }: Setting, name: string): Pick<Row, 'name' | 'fileSystem' | 'compared'> {
  return { name, fileSystem, compared: 'files by SHA-256 against git archive, of every object' }
}

function againstPeer(ours: Cost, peer: Cost, most: { wall: number; cpu?: number; bytes?: number }): Ratio[] {
  const bound = (atMost: number | undefined) => (atMost === undefined ? {} : { atMost })
  return [
    ratio('wall, ours/peer', ours.wallMs / peer.wallMs, bound(most.wall)),
    ratio('CPU, ours/peer', ours.cpuSeconds / peer.cpuSeconds, bound(most.cpu)),
    ratio('upstream bytes, ours/peer', ours.upstreamBytes / peer.upstreamBytes, bound(most.bytes)),
    ratio('memory, ours/peer', ours.peakMemoryBytes / peer.peakMemoryBytes),
  ]
}

function repeated(repository: Repository, count: number): Repository[] {
  return Array.from({ length: count }, () => repository)
}

/** Creates an object on each repository at once and waits until all are Ready. */
async function storeAll({ stage }: Setting, arm: Arm, repositories: readonly Repository[]): Promise<Stored> {
  const objects = repositories.map((repository, n) => ({ name: `app-${n}`, repository }))
  const cost = await costOf(arm.process.pid, stage.git, async () => {
    const create = ({ name, repository }: (typeof objects)[number]) =>
      stage.create(name, { url: urlOf(stage.git, repository), ref: { branch: 'main' } })
    await Promise.all(objects.map(create))
    await stage.until('all objects are Ready', () => objects.every(({ name }) => stage.isReady(name)))
  })
  const stored = { cost, diskBytes: await diskBytes(arm.storage) }
  // Equal digests are equal bytes: each is downloaded once.
  const seen = new Set<string>()
  for (const { name, repository } of objects) {
    const served = stage.served(name)
    const key = `${repository.dir} ${served?.revision} ${served?.digest}`
    if (seen.has(key)) continue
    await assertServes(stage, name, repository, await commitOf(repository, 'refs/heads/main'))
    seen.add(key)
  }
  return stored
}

const writesPerObject = 3

/** One clone, one archive, and as many writes to the API as the objects cannot do without. */
async function floorOfMany(setting: Setting): Promise<Cost> {
  const { stage, repository, sizes } = setting
  const cost = await floorOf(setting)
  await stage.enter()
  const names = Array.from({ length: sizes.many }, (_, n) => `app-${n}`)
  for (const name of names) await stage.create(name, { url: urlOf(stage.git, repository), ref: { branch: 'main' } })
  const before = cpuUsage()
  const startedAt = performance.now()
  await Promise.all(names.map((name) => writeStatus(setting, name)))
  const wallMs = performance.now() - startedAt
  const { user, system } = cpuUsage(before)
  await stage.leave()
  return { ...cost, wallMs: cost.wallMs + wallMs, cpuSeconds: cost.cpuSeconds + (user + system) / 1e6 }
}

async function writeStatus({ stage }: Setting, name: string): Promise<void> {
  const key = { namespace: stage.namespace, name }
  for (let n = 0; n < writesPerObject; n++)
    await stage.client.patch(GitRepositoryKind, key, { status: { observedGeneration: n } }, { subresource: 'status' })
}
