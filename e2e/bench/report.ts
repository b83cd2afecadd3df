import { readFile, statfs } from 'node:fs/promises'
import { cpus, release, totalmem } from 'node:os'

/** Figures by name; the unit ends the name: `wallMs`, `cpuSeconds`, `peakRssBytes`, `requestsPerSecond`. */
export type Figures = Record<string, number | string | readonly number[]>

/** One quotient of figures, and what it should be. */
export interface Ratio {
  name: string
  value: number
  /** `>= 1.4` or `<= 0.35`; absent where the ratio only informs. */
  target?: string
  met?: boolean
}

/** One line of a benchmark: the same work done by every arm in turn, in one run. */
export interface Row {
  name: string
  /** Of the folder that the arms worked on, e.g. `tmpfs`. */
  fileSystem: string
  /** By the arm's name: `ours`, `floor`, `peer` and the like. */
  arms: Record<string, Figures>
  ratios: Ratio[]
  /** How the contents that the arms gave were found equal; a row without it proves nothing. */
  compared: string
}

/** What a benchmark gives. */
export interface Report {
  /** Of the programs that took part. */
  versions: Record<string, string>
  /** Flags and counts that the figures depend on. */
  setting: Record<string, unknown>
  rows: Row[]
}

/** A quotient rounded to three digits behind the point, held against a bound if one is given. */
export function ratio(name: string, value: number, bound: { atLeast?: number; atMost?: number } = {}): Ratio {
  const rounded = Math.round(value * 1000) / 1000
  const { atLeast, atMost } = bound
  if (atLeast !== undefined) return { name, value: rounded, target: `>= ${atLeast}`, met: value >= atLeast }
  if (atMost !== undefined) return { name, value: rounded, target: `<= ${atMost}`, met: value <= atMost }
  return { name, value: rounded }
}

/** The middle one, or the mean of the two in the middle; NaN of none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const half = sorted.length >> 1
  return sorted.length % 2 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2
}

/** Magic numbers of statfs(2). */
const fileSystems: Record<number, string> = {
  0x01021994: 'tmpfs',
  0xef53: 'ext4',
  0x58465342: 'xfs',
  0x9123683e: 'btrfs',
  0x794c7630: 'overlayfs',
  0x6969: 'nfs',
  0x2fc12fc1: 'zfs',
}

/** The kind of file system that a folder is on, e.g. `tmpfs`; its magic number in hex where that has no name here. */
export async function fileSystemOf(folder: string): Promise<string> {
  const { type } = await statfs(folder)
  return fileSystems[type] ?? `0x${type.toString(16)}`
}

/** What the figures were measured on. */
export async function machine(): Promise<Record<string, unknown>> {
  const processors = cpus()
  const load = await readFile('/proc/loadavg', 'utf8').catch(() => '') // Linux only
  return {
    platform: `${process.platform}-${process.arch}`,
    kernel: release(),
    processor: processors[0]?.model,
    cores: processors.length,
    memoryBytes: totalmem(),
    loadBefore: load.split(' ', 3).map(Number),
  }
}
