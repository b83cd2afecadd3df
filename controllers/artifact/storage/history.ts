import { parseDigest } from '../digest.ts'
import { parsePath } from './paths.ts'
import type { StoredArtifact } from '../stored.ts'

/** One span of time in which one file was the current one of an object. */
export interface HistoryEntry {
  /** The file's name in the object's folder. */
  file: string
  revision: string
  digest: string
  /** Bytes. */
  size: number
  /** RFC 3339 with milliseconds. */
  since: string
  /** Absent while it is current. */
  until?: string
  /** When file and digest became the current ones: `since` of the first of the entries in a row that have both. */
  updated: string
  metadata?: Record<string, string>
}

/** Oldest first; the last one is current. */
export type History = readonly HistoryEntry[]

/** Which of the stored artifacts of an object is meant. */
export type HistoryQuery = 'latest' | { revision: string } | { digest: string } | { time: Date }

/** The log with a new current entry, or with only its metadata changed where nothing else did. Time never runs backwards in it. */
export function append(
  history: History,
  stored: Pick<HistoryEntry, 'file' | 'revision' | 'digest' | 'size'>,
  metadata: Record<string, string> | undefined,
  nowMs: number,
): HistoryEntry[] {
  const current = history.at(-1)
  const since = new Date(Math.max(nowMs, current ? Date.parse(current.since) : 0)).toISOString()
  const sameBytes = current !== undefined && current.file === stored.file && current.digest === stored.digest
  const entry: HistoryEntry = {
    ...stored,
    since,
    updated: sameBytes ? current.updated : since,
    ...(metadata && { metadata }),
  }
  if (sameBytes && current.revision === stored.revision)
    return [...history.slice(0, -1), { ...entry, since: current.since }]
  return current ? [...history.slice(0, -1), { ...current, until: since }, entry] : [entry]
}

/** The newest entry that is meant. Times count in whole seconds, as `lastUpdateTime` does: asked for that very time, it is found. */
export function findEntry(history: History, query: HistoryQuery): HistoryEntry | undefined {
  if (query === 'latest') return history.at(-1)
  if ('revision' in query) return history.findLast((entry) => entry.revision === query.revision)
  if ('digest' in query) return history.findLast((entry) => entry.digest === query.digest)
  const at = query.time.getTime()
  const entry = history.findLast(({ since }) => wholeSecond(since) <= at)
  return entry && (entry.until === undefined || at < wholeSecond(entry.until)) ? entry : undefined
}

function wholeSecond(time: string): number {
  return Math.floor(Date.parse(time) / 1000) * 1000
}

/** An entry as others see it. Kubernetes' times have whole seconds. */
export function toArtifact(folder: string, entry: HistoryEntry): StoredArtifact {
  const { file, revision, digest, size, updated, metadata } = entry
  const lastUpdateTime = new Date(wholeSecond(updated)).toISOString().replace('.000Z', 'Z')
  return { path: `${folder}/${file}`, revision, digest, size, lastUpdateTime, ...(metadata && { metadata }) }
}

/** The text of a log, for `parseHistory`. */
export function formatHistory(history: History): string {
  return `${JSON.stringify({ version: 1, entries: history }, undefined, 1)}\n`
}

/** The log of a folder. Throws on anything that `formatHistory` does not write. */
export function parseHistory(folder: string, text: string): HistoryEntry[] {
  const { version, entries } = fieldsOf(JSON.parse(text))
  if (version !== 1 || !Array.isArray(entries)) throw new Error('not a history of version 1')
  return entries.map((entry) => checkEntry(folder, fieldsOf(entry)))
}

function fieldsOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? { ...value } : {}
}

function checkEntry(folder: string, entry: Record<string, unknown>): HistoryEntry {
  const { file, revision, digest, size, since, until, updated, metadata } = entry
  if (typeof file !== 'string' || !parsePath(`${folder}/${file}`)) throw new Error('an entry has a bad file')
  if (typeof revision !== 'string' || typeof digest !== 'string') throw new Error('an entry has no revision or digest')
  parseDigest(digest)
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) throw new Error('an entry has a bad size')
  if (!isTime(since) || !isTime(updated) || (until !== undefined && !isTime(until)))
    throw new Error('an entry has a bad time')
  return {
    file,
    revision,
    digest,
    size,
    since,
    ...(until !== undefined && { until }),
    updated,
    ...(metadata !== undefined && { metadata: checkMetadata(metadata) }),
  }
}

function isTime(value: unknown): value is string {
  return typeof value === 'string' && !Number.isNaN(Date.parse(value))
}

function checkMetadata(value: unknown): Record<string, string> {
  const pairs = Object.entries(fieldsOf(value)).map(([key, text]): [string, string] => {
    if (typeof text !== 'string') throw new Error('an entry has bad metadata')
    return [key, text]
  })
  return Object.fromEntries(pairs)
}
