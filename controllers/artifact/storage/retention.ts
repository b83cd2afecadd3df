import type { History, HistoryEntry } from './history.ts'

/** When a file may go. */
export interface RetentionRule {
  /** How many files are kept at least, the current one included. */
  records: number
  /** Whether an entry was superseded so long ago that its file may go. */
  isExpired: (entry: HistoryEntry) => boolean
  /** The name of a file that stays whatever the log says. */
  keep?: string | undefined
}

/** What may go: files that are beyond the newest `records` and expired, never the current one; and entries that nothing needs any more. */
export function retire(
  history: History,
  { records, isExpired, keep }: RetentionRule,
): { files: string[]; history: HistoryEntry[] } {
  const lastUse = new Map<string, HistoryEntry>()
  for (const entry of history.toReversed()) if (!lastUse.has(entry.file)) lastUse.set(entry.file, entry)
  const files = [...lastUse.values()]
    .slice(Math.max(records, 1))
    .filter((entry) => entry.file !== keep && isExpired(entry))
    .map((entry) => entry.file)
  const kept = history.filter((entry, at) => {
    if (files.includes(entry.file)) return false
    const isNeeded = lastUse.get(entry.file) === entry || at >= history.length - records
    return isNeeded || !isExpired(entry)
  })
  return { files, history: kept }
}
