import { createHash } from 'node:crypto'

/** The lease of a component; each label selector (a shard) has one of its own, by Flux's rule: the first 8 hex digits of its SHA-256. */
export function leaseName(base: string, labelSelector: string): string {
  if (!labelSelector) return base
  return `${base}-${createHash('sha256').update(labelSelector).digest('hex').slice(0, 8)}`
}
