import { setTimeout as delay } from 'node:timers/promises'
import { getCondition } from '../../controllers/runtime/conditions.ts'
import { sampleName } from './sample.ts'
import { type Flow, say } from './view.ts'

/** A failure that lasts so long will not go away by itself. */
const patienceMs = 20_000

/** Resolves when the consumer has extracted what the source has stored. Throws the reason when that does not come about, or not in time. */
export async function untilArrived(
  flow: Flow,
  namespace: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<void> {
  const deadline = performance.now() + timeoutMs
  let failingSince: number | undefined
  while (!signal.aborted) {
    const arrived = arrivalOf(flow, namespace)
    if (arrived) return say('done', `${arrived}, digest verified`)
    const now = performance.now()
    const failure = failureOf(flow, namespace)
    failingSince = failure ? (failingSince ?? now) : undefined
    if (failure && now - failingSince! > patienceMs) throw new Error(failure)
    if (now > deadline) throw new Error(failure ?? `no verified artifact at the consumer after ${timeoutMs / 1000} s`)
    await delay(100)
  }
}

function arrivalOf({ source, artifacts, consumer }: Flow, namespace: string): string | undefined {
  const key = `${namespace}/${sampleName}`
  const stored = source.cache.get(key)?.status?.artifact
  const applied = consumer.cache.get(key)?.status
  const artifact = [...artifacts.cache.list()].find(({ spec }) => stored && spec?.digest === stored.digest)
  const same = artifact !== undefined && applied?.lastAppliedDigest === artifact.spec?.digest
  return same && applied?.files ? `${applied.files} files of ${artifact.spec?.revision}` : undefined
}

function failureOf({ source, consumer }: Flow, namespace: string): string | undefined {
  const key = `${namespace}/${sampleName}`
  const conditions = [source, consumer]
    .map(({ cache }) => cache.get(key))
    .map((object) => object && getCondition(object, 'Ready'))
  return conditions.find((ready) => ready?.status === 'False' && ready.reason !== 'ArtifactNotFound')?.message
}
