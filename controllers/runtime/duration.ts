import { StalledError } from './errors.ts'

const unitMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 } as const

/** A Go duration as Kubernetes manifests have it (`1m30s`, `500ms`), in ms. Undefined where the text is none. */
export function parseDuration(text: string): number | undefined {
  if (text.length > 64 || !/^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$/.test(text)) return undefined
  let totalMs = 0
  for (const [, amount, unit] of text.matchAll(/([0-9.]+)(ms|s|m|h)/g))
    totalMs += Number(amount) * unitMs[unit as keyof typeof unitMs]
  return totalMs
}

/** The duration in ms of a field of a spec. Throws StalledError `InvalidDuration` naming the field, in case the CRD's pattern let it through. */
export function durationOf(field: string, text: string): number {
  const ms = parseDuration(text)
  if (ms === undefined)
    throw new StalledError('InvalidDuration', `${field}: '${text.slice(0, 64)}' is not a duration like 1m30s`)
  return ms
}
