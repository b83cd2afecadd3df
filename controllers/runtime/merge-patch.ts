type Json = unknown

/**
 * The JSON merge patch (RFC 7386) that turns `before` into `after`, or undefined where they are equal. Arrays are replaced whole; what is missing or
 * undefined in `after` is removed.
 */
export function mergePatch(before: Json, after: Json): Json {
  if (!isRecord(before) || !isRecord(after)) return equal(before, after) ? undefined : after
  const patch: Record<string, Json> = {}
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const value = after[key]
    if (value === undefined) {
      if (before[key] !== undefined) patch[key] = null
      continue
    }
    const change = mergePatch(before[key], value)
    if (change !== undefined) patch[key] = change
  }
  return Object.keys(patch).length ? patch : undefined
}

/** Whether two JSON values are the same, whatever the order of their keys. */
export function equal(a: Json, b: Json): boolean {
  if (a === b) return true
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, i) => equal(item, b[i]))
  if (!isRecord(a) || !isRecord(b)) return false
  const keys = new Set([...Object.keys(a), ...Object.keys(b)])
  return [...keys].every((key) => equal(a[key], b[key]))
}

function isRecord(value: Json): value is Record<string, Json> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
