import { setTimeout as delay } from 'node:timers/promises'
import { Client, type Selection } from './client.ts'
import { Controller, type Reconcile } from './controller.ts'
import { messageOf } from './errors.ts'
import { type EventRecorder, KubeEventRecorder } from './events.ts'
import { processIdentity, type RuntimeFlags } from './flags.ts'
import { Informer, type InformerOptions } from './informer.ts'
import { apiVersionOf, type Kind, type KubeObject } from './kind.ts'
import { loadCredentials } from './kube-config.ts'
import { LeaderElector } from './lease.ts'
import { leaseName } from './lease-name.ts'
import { type Logger, makeLogger } from './log.ts'
import { aborted } from './sleep.ts'
import { type Check, type Listening, serveMetrics, serveProbes } from './probes.ts'

/** How long the end of a process waits for its last events, in ms. */
const flushMs = 3_000

/** One controller as the manager runs it: leased, started and stopped with the process. */
export interface Unit<T extends KubeObject = KubeObject> {
  kind: Kind<T>
  /** The controller's own name: field manager, event source and lease, e.g. `openflux-gitrepository`. */
  component: string
  reconcile: Reconcile
  informer: Informer<T>
  /** Written on the lease for the other replicas to read. */
  leaseAnnotations?: Record<string, string>
  /** Throws when this controller must not start, e.g. beside another that owns the same objects. */
  beforeStart?(signal: AbortSignal): Promise<void>
  /** Runs before the workers of a term of leadership start; the keys it gives are worked on first. */
  beforeTerm?(term: AbortSignal): Promise<Iterable<string>>
  /** Runs beside the workers of a term of leadership. */
  duringTerm?(controller: Controller<T>, term: AbortSignal): Promise<void>
}

/** A unit that was added. */
export interface Added<T extends KubeObject = KubeObject> {
  controller: Controller<T>
  elector: LeaderElector | undefined
}

/** Holds what the controllers of one process share (connections, informers, probes, metrics) and runs them. */
export class Manager {
  readonly flags: RuntimeFlags
  readonly log: Logger
  readonly client: Client
  readonly identity = processIdentity()
  readonly #informers: Map<string, Pick<Informer<KubeObject>, 'kind' | 'synced' | 'whenSynced' | 'run'>> = new Map()
  readonly #units: ((signal: AbortSignal) => Promise<void>)[] = []
  readonly #checks: Map<string, Check> = new Map()
  readonly #tasks: ((signal: AbortSignal) => Promise<void>)[] = []
  readonly #recorders: KubeEventRecorder[] = []

  constructor(flags: RuntimeFlags, name: string) {
    this.flags = flags
    this.log = makeLogger(flags.logLevel, flags.logEncoding)
    this.client = new Client(loadCredentials(flags.kubeconfig), name)
  }

  /** The namespaces that the flags let this process watch. */
  get namespaces(): Selection {
    return { namespace: this.flags.watchAllNamespaces ? undefined : this.flags.runtimeNamespace }
  }

  /** The informer of a kind, made at the first call; later callers share it and its indexes. */
  informer<T extends KubeObject>(kind: Kind<T>, options: InformerOptions<T> = {}): Informer<T> {
    const id = `${apiVersionOf(kind)}/${kind.plural}?${JSON.stringify(options.selection ?? {})}`
    const known = this.#informers.get(id) as Informer<T> | undefined
    if (known) return known
    const informer = new Informer(this.client, this.log, kind, options)
    this.#informers.set(id, informer)
    return informer
  }

  /** Events under a controller's own name. */
  events(component: string): EventRecorder {
    const recorder = new KubeEventRecorder(this.client.as(component), component, this.flags.eventsAddr, this.log)
    this.#recorders.push(recorder)
    return recorder
  }

  add<T extends KubeObject>(unit: Unit<T>): Added<T> {
    const { flags } = this
    const client = this.client.as(unit.component)
    const name = unit.kind.kind.toLowerCase()
    const controller = new Controller<T>({
      ...unit,
      name,
      client,
      events: this.events(unit.component),
      log: this.log,
      concurrent: flags.concurrent,
      backoff: { minMs: flags.minRetryDelay, maxMs: flags.maxRetryDelay },
      requeueDependencyMs: flags.requeueDependency,
    })
    const elector = flags.enableLeaderElection
      ? this.#elector(unit.component, client, unit.leaseAnnotations)
      : undefined
    this.#units.push((signal) => this.#runUnit(unit, { controller, elector }, signal))
    return { controller, elector }
  }

  /** Adds a condition of readiness. */
  readyWhen(name: string, check: Check): void {
    this.#checks.set(name, check)
  }

  /** Adds something that runs from start to stop whoever leads, e.g. a server. Its failure ends the process. */
  background(task: (signal: AbortSignal) => Promise<void>): void {
    this.#tasks.push(task)
  }

  /** Runs everything until `signal` aborts, then ends it in reverse order. Throws what made a start impossible. */
  async run(signal: AbortSignal): Promise<void> {
    const { flags } = this
    const stop = new AbortController()
    const servers: Listening[] = []
    const end = () => stop.abort(signal.reason)
    signal.addEventListener('abort', end, { once: true })
    if (signal.aborted) end()
    this.readyWhen('informers', () => this.#unsynced())
    try {
      servers.push(await serveProbes(flags.healthAddr, this.#checks), await serveMetrics(flags.metricsAddr))
      this.log.info({ healthPort: servers[0]?.port, metricsPort: servers[1]?.port }, 'serving probes and metrics')
      const informers = [...this.#informers.values()].map((informer) => informer.run(stop.signal))
      const tasks = this.#tasks.map((task) => task(stop.signal))
      const units = this.#units.map((run) => run(stop.signal))
      try {
        await Promise.all([aborted(stop.signal), ...tasks, ...units])
      } finally {
        stop.abort()
        await Promise.allSettled([...tasks, ...units, ...informers])
        // Events are of use to people only: a silent API server must not hold up the end.
        await Promise.race([Promise.all(this.#recorders.map((recorder) => recorder.flush())), delay(flushMs)])
      }
    } finally {
      signal.removeEventListener('abort', end)
      for (const server of servers) await server.close()
    }
  }

  async #runUnit<T extends KubeObject>(
    unit: Unit<T>,
    { controller, elector }: Added<T>,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      await unit.beforeStart?.(signal)
      const synced = Promise.all([...this.#informers.values()].map((informer) => informer.whenSynced()))
      await Promise.race([synced, aborted(signal)])
    } catch (err) {
      if (signal.aborted) return
      throw err
    }
    if (signal.aborted) return
    const lead = async (term: AbortSignal): Promise<void> => {
      const first = await unit.beforeTerm?.(term)
      await Promise.all([controller.run(term, first), unit.duringTerm?.(controller, term)])
    }
    if (elector) await elector.run(signal, lead)
    else await lead(signal)
  }

  #elector(component: string, client: Client, annotations: Record<string, string> | undefined): LeaderElector {
    const { flags } = this
    return new LeaderElector({
      client,
      log: this.log,
      lease: { namespace: flags.runtimeNamespace, name: leaseName(component, flags.watchLabelSelector) },
      identity: this.identity,
      leaseDurationMs: flags.leaderElectionLeaseDuration,
      renewDeadlineMs: flags.leaderElectionRenewDeadline,
      retryPeriodMs: flags.leaderElectionRetryPeriod,
      ...(annotations && { annotations }),
    })
  }

  #unsynced(): string | undefined {
    const waiting = [...this.#informers.values()].filter((informer) => !informer.synced)
    return waiting.length
      ? `waiting for the first list of ${waiting.map((informer) => informer.kind.kind).join(', ')}`
      : undefined
  }
}

/** Runs a process until SIGTERM or SIGINT. Says why it could not start and exits with 1 then. */
export async function runUntilSignal(log: Logger, run: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const stop = new AbortController()
  for (const name of ['SIGTERM', 'SIGINT'] as const) {
    process.once(name, () => {
      log.info({ signal: name }, 'stopping')
      stop.abort(new Error(name))
    })
  }
  // A promise nobody waited for is a fault of one object's pass; the others and the server go on.
  process.on('unhandledRejection', (err) => log.error({ error: err }, 'unhandled rejection'))
  try {
    await run(stop.signal)
    log.info('stopped')
  } catch (err) {
    log.error({ error: messageOf(err) }, 'ended')
    process.exitCode = 1
  }
  // What a start that failed half-way has left open (a listening socket, say) must not keep the process alive.
  process.exit()
}
