import { readdirSync, readFileSync } from 'node:fs'

/** What a process and all its descendants have used. */
export interface TreeUsage {
  /** User and system time since the start of the watch, ended children included; to 10 ms. */
  cpuSeconds: number
  /** The highest sum of resident memory that a sample saw; pages shared by several processes count once for each. */
  peakRssBytes: number
  /** The same with shared pages split among those who share them. */
  peakPssBytes: number
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
  /** Of the children alone. */
  childTicks: number
  /** Since boot: with the number it tells a process from a later one of the same number. */
  startTicks: number
}

/** USER_HZ of proc(5), the same on every Linux. */
const ticksPerSecond = 100
const pageBytes = 4096
const sampleMs = 50

/** Watches a living process and all it starts, also what its parent has left behind. Linux only. */
export function watchTree(root: number): TreeWatch {
  const members = new Map<number, number>()
  const sample = () => {
    const stats = allStats()
    grow(members, root, stats)
    const peaks = { rssBytes: 0, pssBytes: 0, cpuTicks: 0 }
    for (const pid of members.keys()) {
      peaks.cpuTicks += stats.get(pid)!.cpuTicks
      peaks.rssBytes += rssOf(pid)
      peaks.pssBytes += pssOf(pid)
    }
    return peaks
  }
  const first = sample()
  let { rssBytes: peakRssBytes, pssBytes: peakPssBytes } = first
  const take = () => {
    const now = sample()
    peakRssBytes = Math.max(peakRssBytes, now.rssBytes)
    peakPssBytes = Math.max(peakPssBytes, now.pssBytes)
    return now.cpuTicks
  }
  const timer = setInterval(take, sampleMs)
  return {
    stop() {
      clearInterval(timer)
      return { cpuSeconds: (take() - first.cpuTicks) / ticksPerSecond, peakRssBytes, peakPssBytes }
    },
  }
}

/** CPU seconds of all children of this process that have ended: the difference around a command is what it used, with all it started. */
export function endedChildrenCpuSeconds(): number {
  return (statOf(process.pid)?.childTicks ?? 0) / ticksPerSecond
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
  const childTicks = field(16) + field(17)
  return { parent: field(4), cpuTicks: field(14) + field(15) + childTicks, childTicks, startTicks: field(22) }
}

function rssOf(pid: number): number {
  return Number(read(`/proc/${pid}/statm`).split(' ')[1] ?? 0) * pageBytes
}

function pssOf(pid: number): number {
  return Number(/^Pss:\s+(\d+) kB$/m.exec(read(`/proc/${pid}/smaps_rollup`))?.[1] ?? 0) * 1024
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return '' // it has just ended, or is another user's
  }
}
