import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** What a process and all its descendants have used. */
export interface TreeUsage {
  /** User and system time since the start of the watch, ended children included; to 10 ms. */
  cpuSeconds: number
  /** The highest sum of resident memory that a sample saw; pages shared by several processes count once for each. */
  peakRssBytes: number
  /** The same, but what several processes of one program share, such as its code, counts once; in full, whoever outside of the tree shares it too. */
  peakMemoryBytes: number
}

/** Samples a tree until it is stopped. */
export interface TreeWatch {
  /** The last sample is taken now; the tree must still be alive for its CPU time to count. */
  stop(): TreeUsage
}

interface Stat {
  parent: number
  /** Of the process itself, and with that of the children it has waited for. */
  cpuTicks: number
  /** Since boot: with the number it tells a process from a later one of the same number. */
  startTicks: number
}

/** USER_HZ of proc(5), the same on every Linux. */
const ticksPerSecond = 100
const sampleMs = 50

/** Watches a living process and all it starts, also what its parent has left behind. Linux only. */
export function watchTree(root: number): TreeWatch {
  const members = new Map<number, number>()
  const sample = () => {
    const stats = allStats()
    grow(members, root, stats)
    const pids = [...members.keys()]
    const cpuTicks = pids.reduce((sum, pid) => sum + stats.get(pid)!.cpuTicks, 0)
    return { cpuTicks, ...memoryOf(pids) }
  }
  const first = sample()
  let { rssBytes: peakRssBytes, memoryBytes: peakMemoryBytes } = first
  const take = () => {
    const now = sample()
    peakRssBytes = Math.max(peakRssBytes, now.rssBytes)
    peakMemoryBytes = Math.max(peakMemoryBytes, now.memoryBytes)
    return now.cpuTicks
  }
  const timer = setInterval(take, sampleMs)
  return {
    stop() {
      clearInterval(timer)
      return { cpuSeconds: (take() - first.cpuTicks) / ticksPerSecond, peakRssBytes, peakMemoryBytes }
    },
  }
}

/** Adds the new descendants, removes who has ended. Whoever was seen once stays, though its parent may end. */
function grow(members: Map<number, number>, root: number, stats: ReadonlyMap<number, Stat>): void {
  for (const [pid, startTicks] of members) if (stats.get(pid)?.startTicks !== startTicks) members.delete(pid)
  const rootStat = stats.get(root)
  if (rootStat) members.set(root, rootStat.startTicks)
  for (let before = -1; before !== members.size;) {
    before = members.size
    for (const [pid, { parent, startTicks }] of stats) if (members.has(parent)) members.set(pid, startTicks)
  }
}

function allStats(): Map<number, Stat> {
  const stats = new Map<number, Stat>()
  for (const name of readdirSync('/proc')) {
    const stat = /^\d+$/.test(name) ? statOf(Number(name)) : undefined
    if (stat) stats.set(Number(name), stat)
  }
  return stats
}

/** proc_pid_stat(5); undefined for a process that is gone. */
function statOf(pid: number): Stat | undefined {
  const text = read(`/proc/${pid}/stat`)
  // The second field is the program's name in brackets, with any characters in it.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const field = (number: number) => Number(fields[number - 3])
  if (text === '') return undefined
  const cpuTicks = field(14) + field(15) + field(16) + field(17)
  return { parent: field(4), cpuTicks, startTicks: field(22) }
}

/** Resident memory: the sum, and with what processes of one program share counted once. */
function memoryOf(pids: readonly number[]): { rssBytes: number; memoryBytes: number } {
  let [rssBytes, memoryBytes] = [0, 0]
  const shared = new Map<string, number>()
  for (const pid of pids) {
    const pages = read(`/proc/${pid}/smaps_rollup`)
    const rss = bytesIn(pages, 'Rss')
    const own = bytesIn(pages, 'Private_Clean') + bytesIn(pages, 'Private_Dirty')
    rssBytes += rss
    memoryBytes += own
    const program = programOf(pid)
    shared.set(program, Math.max(shared.get(program) ?? 0, rss - own))
  }
  for (const bytes of shared.values()) memoryBytes += bytes
  return { rssBytes, memoryBytes }
}

/** A line of proc_pid_smaps(5). */
function bytesIn(pages: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(pages)?.[1] ?? 0) * 1024
}

function programOf(pid: number): string {
  try {
    return readlinkSync(`/proc/${pid}/exe`)
  } catch {
    return '' // it has just ended
  }
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return '' // it has just ended, or is another user's
  }
}
