import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { request } from 'undici'
import { clientFor, makeNamespace, sharedControlPlane } from '../../e2e/shared-control-plane.ts'
import { artifactName, type ServedArtifact } from '../artifact/artifact.ts'
import { type Artifact, ArtifactKind } from '../artifact/types.ts'
import type { Client } from '../runtime/client.ts'
import { getCondition } from '../runtime/conditions.ts'
import { requestedAtAnnotation } from '../runtime/controller.ts'
import { eventually } from '../runtime/eventually.ts'
import { type CoreEvent, EventKind } from '../runtime/events.ts'
import { makeCommand, type RuntimeFlags } from '../runtime/flags.ts'
import { apiVersionOf, type Kind } from '../runtime/kind.ts'
import { Manager } from '../runtime/manager.ts'
import { addStorageFlags, type StorageFlags } from './flags.ts'
import { SourceHost } from './host.ts'
import type { Source, SourceObject } from './source.ts'

/** A source controller in this process, on a real API server and in a namespace of its own, and what a test does with it. */
export interface SourceRun<T extends SourceObject> {
  client: Client
  namespace: string
  storage: string
  fetches: () => number
  resolves: () => number
  create: (name: string, spec?: Partial<T['spec']>) => Promise<void>
  read: (name: string) => Promise<T>
  /** Asks for a pass and resolves with the object after it. */
  poke: (name: string) => Promise<T>
  artifact: (name: string) => Promise<Artifact | undefined>
  events: (name: string, reason: string) => Promise<CoreEvent[]>
  ready: (name: string) => Promise<T & { status: { artifact: ServedArtifact } }>
  stop: () => Promise<void>
}

/** How a controller under test differs from others. */
export interface SourceRunOptions {
  /** Further flags, which win over those of every test. */
  flags?: readonly string[]
  /** Gives the kubeconfig that the controller uses in the namespace; defaults to an administrator's. */
  login?: (client: Client, namespace: string) => Promise<string>
}

/** Starts a controller for `source`; objects get `spec` where a test says nothing else. */
export async function startSourceRun<T extends SourceObject, U>(
  source: Source<T, U>,
  spec: T['spec'],
  { flags = [], login }: SourceRunOptions = {},
): Promise<SourceRun<T>> {
  const { kubeconfig: admin } = await sharedControlPlane()
  const client = clientFor(admin)
  const namespace = await makeNamespace(client)
  const kubeconfig = (await login?.(client, namespace)) ?? admin
  const storage = await mkdtemp(join(tmpdir(), 'openflux-source-'))
  const { kind } = source
  let fetches = 0
  let resolves = 0
  const counted: Source<T, U> = {
    ...source,
    resolve: (...args) => {
      resolves++
      return source.resolve(...args)
    },
    fetch: (...args) => {
      fetches++
      return source.fetch(...args)
    },
  }
  const stop = new AbortController()
  const own = [`--kubeconfig=${kubeconfig}`, `--runtime-namespace=${namespace}`, `--storage-path=${storage}`]
  const running = await runInProcess([...own, ...flags], counted, stop.signal)
  const read = async (name: string): Promise<T> => {
    const object = await client.get<T>(kind, { namespace, name })
    assert.ok(object, `${kind.kind} ${name} is gone`)
    return object
  }
  return {
    client,
    namespace,
    storage,
    fetches: () => fetches,
    resolves: () => resolves,
    read,
    async create(name, own = {}) {
      await client.create(
        kind as Kind,
        {
          apiVersion: apiVersionOf(kind),
          kind: kind.kind,
          metadata: { name, namespace },
          spec: { ...spec, ...own },
        } as T,
      )
    },
    async poke(name) {
      const token = `poke-${Math.random()}`
      await client.patch(kind, { namespace, name }, { metadata: { annotations: { [requestedAtAnnotation]: token } } })
      return eventually(async () => {
        const object = await read(name)
        return object.status?.lastHandledReconcileAt === token && object
      })
    },
    artifact: (name) =>
      client.get(ArtifactKind, { namespace, name: artifactName(kind, { metadata: { namespace, name } }) }),
    async events(name, reason) {
      const all = await client.list<CoreEvent>(EventKind, { namespace })
      return all.filter((event) => event.reason === reason && event.involvedObject.name === name)
    },
    ready: (name) =>
      eventually(async () => {
        const object = await read(name)
        assert.equal(getCondition(object, 'Ready')?.status, 'True', JSON.stringify(object.status?.conditions))
        assert.equal(object.status?.observedGeneration, object.metadata.generation)
        return object as T & { status: { artifact: ServedArtifact } }
      }),
    async stop() {
      stop.abort()
      await running.done
      await rm(storage, { recursive: true, force: true })
    },
  }
}

async function runInProcess<T extends SourceObject, U>(
  flags: readonly string[],
  source: Source<T, U>,
  signal: AbortSignal,
): Promise<{ done: Promise<void> }> {
  const command = makeCommand('conformance', 'a source controller under test')
  addStorageFlags(command)
  command.parse(
    [
      '--watch-all-namespaces=false',
      '--storage-addr=127.0.0.1:0',
      '--metrics-addr=127.0.0.1:0',
      '--health-addr=127.0.0.1:0',
      '--artifact-retention-ttl=5s',
      '--min-retry-delay=200ms',
      '--max-retry-delay=1s',
      '--log-level=error',
      ...flags,
    ],
    { from: 'user' },
  )
  const parsed = command.opts<RuntimeFlags & StorageFlags>()
  const manager = new Manager(parsed, 'conformance')
  const host = await SourceHost.open(manager, parsed)
  host.add(source)
  return { done: manager.run(signal) }
}

/** Downloads and hashes whatever a URL gives. */
export async function download(url: string): Promise<{ statusCode: number; digest: string }> {
  const { statusCode, body } = await request(url)
  const bytes = Buffer.from(await body.arrayBuffer())
  return { statusCode, digest: `sha256:${createHash('sha256').update(bytes).digest('hex')}` }
}
