import type { Artifact } from '../../controllers/artifact/types.ts'
import type { GitRepository } from '../../controllers/git/types.ts'
import { getCondition } from '../../controllers/runtime/conditions.ts'
import type { Change, Informer } from '../../controllers/runtime/informer.ts'
import type { ConditionedObject, KubeObject } from '../../controllers/runtime/kind.ts'
import type { Extraction } from '../../consumer-sdk/sample/extraction.ts'

/** The three objects that an artifact passes through. */
export interface Flow {
  source: Informer<GitRepository>
  artifacts: Informer<Artifact>
  consumer: Informer<Extraction>
}

const startedAt = performance.now()

/** One line: seconds since the start, who, what. */
export function say(who: string, what: string): void {
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1).padStart(6)
  console.log(`${seconds} s  ${who.padEnd(9)} ${what}`)
}

/** Prints what changes on the way from source to consumer, each thing once. */
export function showFlow({ source, artifacts, consumer }: Flow): void {
  show(source, 'source', (object) => `${object.spec.url}: ${ready(object)}`)
  show(
    artifacts,
    'artifact',
    ({ metadata, spec }) =>
      `${metadata.name}: ${spec?.revision}, ${spec?.digest?.slice(0, 19)}…, ${spec?.size} bytes at ${spec?.url}`,
  )
  show(
    consumer,
    'consumer',
    (object) =>
      `Extraction ${object.metadata.name}: ${ready(object)}${object.status?.path ? `, in ${object.status.path}` : ''}`,
  )
}

function show<T extends KubeObject>(informer: Informer<T>, who: string, tell: (object: T) => string): void {
  let last = ''
  informer.onChange(({ type, object }: Change<T>) => {
    const line = type === 'deleted' ? `${object.metadata.name}: deleted` : tell(object)
    if (line !== last) say(who, line)
    last = line
  })
}

function ready(object: ConditionedObject): string {
  const condition = getCondition(object, 'Ready')
  return condition ? `Ready ${condition.status}, ${condition.message}` : 'applied'
}
