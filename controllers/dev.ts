// What `npm start` runs: a whole cluster's worth of Open Flux on this machine, and a repository flowing through it, live.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeConsumerModule } from '../consumer-sdk/index.ts'
import { ExtractionKind, makeExtraction } from '../consumer-sdk/sample/extraction.ts'
import { untilArrived } from '../e2e/dev/arrival.ts'
import { openCluster } from '../e2e/dev/cluster.ts'
import { openRepository } from '../e2e/dev/repository.ts'
import { applySample, removeSample } from '../e2e/dev/sample.ts'
import { type Flow, say, showFlow } from '../e2e/dev/view.ts'
import { artifactInformerOptions } from './artifact/artifact.ts'
import { ArtifactKind } from './artifact/types.ts'
import { git } from './git/index.ts'
import { GitRepositoryKind } from './git/types.ts'
import { messageOf } from './runtime/errors.ts'
import { booleanFlag, durationArg, flag, makeCommand, type RuntimeFlags } from './runtime/flags.ts'
import { Manager } from './runtime/manager.ts'
import { aborted } from './runtime/sleep.ts'

interface DevFlags extends RuntimeFlags {
  git?: string
  branch?: string
  namespace: string
  once: boolean
  onceTimeout: number
}

const folder = await mkdtemp(join(tmpdir(), 'openflux-'))
const modules = [git, makeConsumerModule('extraction', makeExtraction(join(folder, 'extracted')))]
const flags = parseFlags()
const stop = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort(new Error(signal)))
/** What clears away each thing that was started, to be called in reverse order. */
const undo: (() => Promise<void>)[] = [() => rm(folder, { recursive: true, force: true })]
try {
  await run()
} catch (err) {
  say('failed', messageOf(err))
  process.exitCode = 1
}
for (const step of undo.toReversed())
  await step().catch((err: unknown) => say('failed', `to clear away: ${messageOf(err)}`))
process.exit()

function parseFlags(): DevFlags {
  const command = makeCommand(
    'npm start --',
    'Starts a Kubernetes API and all controllers, and shows a repository on its way to a consumer.',
  )
  for (const option of [
    flag('--git <url>', "the repository to follow; this project's own checkout without it"),
    flag('--branch <name>', 'its branch; the default one without it'),
    flag('--namespace <name>', 'where the objects are made').default('openflux-sample'),
    booleanFlag('once', 'end when the consumer has the verified artifact; exit with 1 if it does not get it', false),
    flag('--once-timeout <duration>', 'how long --once waits').argParser(durationArg).default(120_000, '2m'),
  ])
    command.addOption(option)
  for (const module of modules) module.addFlags(command)
  const loopback = ['--storage-addr', '--metrics-addr', '--health-addr'].map((name) => `${name}=127.0.0.1:0`)
  const own = [`--storage-path=${join(folder, 'storage')}`, '--log-level=error', ...loopback]
  return command.parse([...own, ...process.argv.slice(2)], { from: 'user' }).opts<DevFlags>()
}

async function run(): Promise<void> {
  const { namespace, once } = flags
  const kubeconfig = flags.kubeconfig ?? process.env.KUBECONFIG
  say(
    'cluster',
    kubeconfig ? `that of ${kubeconfig}` : 'starting etcd, kube-apiserver and kube-controller-manager on loopback',
  )
  const cluster = await openCluster(kubeconfig)
  undo.push(() => cluster.stop())
  say('cluster', `ready; look around with: kubectl --kubeconfig ${cluster.kubeconfig} get artifacts -A`)
  const repository = await openRepository(flags.git, flags.branch)
  undo.push(() => repository.stop())
  say('source', `will follow ${repository.shown}`)

  // On a cluster of somebody's own, only the sample is ours to touch.
  const scope = cluster.own ? {} : { watchAllNamespaces: false, runtimeNamespace: namespace }
  const manager = new Manager(
    { ...flags, ...scope, ...(cluster.own && { kubeconfig: cluster.kubeconfig }) },
    'openflux',
  )
  for (const module of modules) await module.add(manager, manager.flags)
  const flow = flowOf(manager)
  showFlow(flow)
  const end = new AbortController()
  const running = manager.run(end.signal)
  undo.push(() => (end.abort(), running))
  if (stop.signal.aborted) return
  if (!cluster.own) undo.push(() => removeSample(namespace))
  await applySample(namespace, repository.spec)

  const arrived = untilArrived(flow, namespace, once ? flags.onceTimeout : Infinity, stop.signal).catch(
    (err: unknown) => {
      if (once) throw err
      say('failed', messageOf(err)) // as long as nobody waits for the end, it may still turn out well
    },
  )
  await Promise.race([running, aborted(stop.signal), once ? arrived : arrived.then(() => aborted(stop.signal))])
}

function flowOf(manager: Manager): Flow {
  const selection = manager.namespaces
  const labelSelector = flags.watchLabelSelector || undefined
  return {
    source: manager.informer(GitRepositoryKind, { selection: { ...selection, labelSelector } }),
    artifacts: manager.informer(ArtifactKind, { ...artifactInformerOptions, selection }),
    consumer: manager.informer(ExtractionKind, { selection: { ...selection, labelSelector } }),
  }
}
