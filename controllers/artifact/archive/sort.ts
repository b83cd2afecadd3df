import type { Pace } from './pace.ts'

/** What the engine sorts in a few ms. */
const sliceLength = 8192

/** The items in ascending order of their keys; a merge sort that lets the event loop breathe where `Array.sort` would hold it for a second. */
export async function sortByKey<T extends { key: string }>(items: readonly T[], pace: Pace): Promise<T[]> {
  let runs: T[][] = []
  for (let at = 0; at < items.length; at += sliceLength) {
    runs.push(items.slice(at, at + sliceLength).toSorted(byKey))
    await pace()
  }
  while (runs.length > 1) {
    const merged: T[][] = []
    for (let at = 0; at < runs.length; at += 2) merged.push(await merge(runs[at]!, runs[at + 1] ?? [], pace))
    runs = merged
  }
  return runs[0] ?? []
}

async function merge<T extends { key: string }>(left: T[], right: T[], pace: Pace): Promise<T[]> {
  const merged: T[] = []
  let [l, r] = [0, 0]
  while (l < left.length && r < right.length) {
    merged.push(left[l]!.key <= right[r]!.key ? left[l++]! : right[r++]!)
    if (merged.length % 1024 === 0) await pace()
  }
  while (l < left.length) merged.push(left[l++]!)
  while (r < right.length) merged.push(right[r++]!)
  return merged
}

function byKey(a: { key: string }, b: { key: string }): number {
  return a.key < b.key ? -1 : Number(a.key > b.key)
}
