import type { GitRepositoryRef } from '../../../controllers/git/types.ts'
import { note } from '../../tools/cache.ts'
import { ratio, type Figures, type Ratio, type Row } from '../report.ts'
import { type Cost, costOf, rounded } from './measure.ts'
import { newestTag } from './repositories.ts'
import { assertServes, commitOf, type Setting, urlOf, withArm, withFloor } from './setting.ts'

/** A way to name a commit, and the question that git asks a server for it. */
interface Mode {
  name: string
  ref: GitRepositoryRef
  /** The ref that it comes to. */
  leadsTo: string
  /** Of `git ls-remote`, which narrows what it asks for by its options alone: what follows the URL it looks for in the answer. */
  question: string
  /** Only version 0 of the protocol. */
  old?: boolean
  /** The most bytes of a poll, in units of the floor's or on their own. */
  limit: { bytes: number } | { ofFloor: number }
}

const main = { leadsTo: 'refs/heads/main', question: '--heads -- "$1" main' }
const tag = `refs/tags/${newestTag}`
const pull = 'refs/pull/7/head'
const oneKilobyte = { bytes: 1024 }
const modes: Mode[] = [
  { name: 'branch', ref: { branch: 'main' }, ...main, limit: oneKilobyte },
  { name: 'tag', ref: { tag: newestTag }, leadsTo: tag, question: `--tags -- "$1" ${newestTag}`, limit: oneKilobyte },
  { name: 'name', ref: { name: pull }, leadsTo: pull, question: `-- "$1" ${pull}`, limit: oneKilobyte },
  { name: 'semver', ref: { semver: '>=1.0.0' }, leadsTo: tag, question: '--tags -- "$1"', limit: { ofFloor: 1 } },
  { name: 'branch, server of version 0', ref: { branch: 'main' }, ...main, old: true, limit: { ofFloor: 1.1 } },
]

/** What it costs to hear that nothing has changed. */
export async function polls(setting: Setting): Promise<Row[]> {
  const costs: Record<string, PollCost>[] = []
  for (const mode of modes) costs.push({ floor: await floorOf(setting, mode) })
  for (const command of setting.arms)
    await withArm(setting, command, async ({ process }) => {
      for (const [n, mode] of modes.entries()) {
        costs[n]![command.name] = await poll(setting, mode, n, process.pid)
        note(`  ${command.name}: polled by ${mode.name}`)
      }
    })
  return modes.map((mode, n) => ({
    name: `no-change poll, ${mode.name}`,
    fileSystem: setting.fileSystem,
    arms: Object.fromEntries(Object.entries(costs[n]!).map(([name, cost]) => [name, figures(cost)])),
    ratios: ratiosOf(mode, costs[n]!),
    compared: 'files of the artifact by SHA-256 against git archive, and its digest after every poll',
  }))
}

async function floorOf(setting: Setting, { question, old }: Mode): Promise<PollCost> {
  const { repository, stage, sizes } = setting
  const script = `i=0; while [ $i -lt ${sizes.polls} ]; do git ls-remote ${question} > "$2/refs"; i=$((i + 1)); done`
  return perPoll(await withFloor(setting, script, { repository, git: old ? stage.oldGit : stage.git }), sizes.polls)
}

async function poll({ stage, repository, sizes }: Setting, mode: Mode, n: number, pid: number): Promise<PollCost> {
  const app = `app-${n}`
  const git = mode.old ? stage.oldGit : stage.git
  const commit = await commitOf(repository, mode.leadsTo)
  await stage.create(app, { url: urlOf(git, repository), ref: mode.ref })
  await stage.until('the first artifact', () => stage.isReady(app))
  await assertServes(stage, app, repository, commit)
  const before = stage.served(app)?.digest
  let polls = 0
  const cost = await costOf(pid, git, async () => {
    const startedAt = performance.now()
    while (polls < sizes.polls && (polls < fewestPolls || performance.now() - startedAt < longestMs)) {
      const token = await stage.poke(app)
      await stage.until('the poll', () => stage.read(app)?.status?.lastHandledReconcileAt === token)
      if (!stage.isReady(app) || stage.served(app)?.digest !== before) throw new Error('the poll changed something')
      polls++
    }
  })
  return perPoll(cost, polls)
}

/** An arm that clones to find out may need minutes for all polls: it gets this time, but makes a few at least. */
const longestMs = 60_000
const fewestPolls = 3

/** All but the memory is that of one poll on average. */
interface PollCost extends Cost {
  polls: number
}

function perPoll(cost: Cost, polls: number): PollCost {
  return {
    polls,
    wallMs: cost.wallMs / polls,
    cpuSeconds: cost.cpuSeconds / polls,
    peakMemoryBytes: cost.peakMemoryBytes,
    upstreamBytes: cost.upstreamBytes / polls,
    upstreamRequests: cost.upstreamRequests / polls,
  }
}

function figures(cost: PollCost): Figures {
  return {
    polls: cost.polls,
    upstreamBytesPerPoll: Math.round(cost.upstreamBytes),
    upstreamRequestsPerPoll: rounded(cost.upstreamRequests, 2),
    cpuMsPerPoll: rounded(cost.cpuSeconds * 1000, 2),
    wallMsPerPoll: rounded(cost.wallMs, 2),
    peakMemoryMiB: rounded(cost.peakMemoryBytes / 2 ** 20),
  }
}

function ratiosOf({ limit }: Mode, { ours, floor, peer }: Record<string, PollCost>): Ratio[] {
  const ratios = [
    'bytes' in limit
      ? ratio('upstream bytes per poll', ours!.upstreamBytes, { atMost: limit.bytes })
      : ratio('upstream bytes, ours/floor', ours!.upstreamBytes / floor!.upstreamBytes, { atMost: limit.ofFloor }),
    ratio('CPU, ours/floor', ours!.cpuSeconds / floor!.cpuSeconds),
    ratio('wall, ours/floor', ours!.wallMs / floor!.wallMs),
  ]
  if (peer) {
    ratios.push(
      ratio('upstream bytes, ours/peer', ours!.upstreamBytes / peer.upstreamBytes),
      ratio('CPU, ours/peer', ours!.cpuSeconds / peer.cpuSeconds, 'bytes' in limit ? { atMost: 0.1 } : {}),
      ratio('wall, ours/peer', ours!.wallMs / peer.wallMs),
    )
  }
  return ratios
}
