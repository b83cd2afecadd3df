import { ApiError, type Client, isStatus } from './client.ts'
import { messageOf } from './errors.ts'
import type { Kind, KubeObject, ObjectKey } from './kind.ts'
import type { Logger } from './log.ts'
import { leaderStatus } from './metrics.ts'
import { sleep } from './sleep.ts'

/** `coordination.k8s.io/v1` Lease. */
export interface Lease extends KubeObject {
  spec?: {
    holderIdentity?: string
    leaseDurationSeconds?: number
    acquireTime?: string
    renewTime?: string
    leaseTransitions?: number
  }
}

export const LeaseKind: Kind<Lease> = { group: 'coordination.k8s.io', version: 'v1', kind: 'Lease', plural: 'leases' }

export interface ElectionTimes {
  /** How long others wait after the last renewal they saw before they take over, in ms. */
  leaseDurationMs: number
  /** How long a leader tries to renew before it gives up, in ms; shorter than the lease. */
  renewDeadlineMs: number
  /** Pause between tries, in ms. */
  retryPeriodMs: number
}

export interface ElectionOptions extends ElectionTimes {
  client: Client
  log: Logger
  lease: ObjectKey
  /** Unique to this process. */
  identity: string
  /** Written on the lease by its holder, for the others to read. */
  annotations?: Record<string, string>
}

/**
 * Leader election on a Lease, by the rules of client-go: a holder that was not seen to renew for the lease's length, on our own
 * monotonic clock, has lost it. Clocks of machines are never compared, so that a clock that jumps elects nobody.
 */
export class LeaderElector {
  readonly #options: ElectionOptions
  #seen: { version: string; at: number } | undefined
  /** The lease as last read, of whomever it is. */
  lease: Lease | undefined

  constructor(options: ElectionOptions) {
    this.#options = options
    leaderStatus.set({ name: options.lease.name }, 0)
  }

  get leading(): boolean {
    return this.#holds(this.lease)
  }

  /** Calls `lead` for each term of leadership with a signal that aborts at its end, until `signal` aborts; then gives the lease back. */
  async run(signal: AbortSignal, lead: (term: AbortSignal) => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      if (!(await this.#tryAcquire(signal))) {
        await sleep(this.#options.retryPeriodMs * (0.9 + Math.random() / 5), signal)
        continue
      }
      await this.#holdTerm(signal, lead)
    }
  }

  async #holdTerm(signal: AbortSignal, lead: (term: AbortSignal) => Promise<void>): Promise<void> {
    const { log, lease } = this.#options
    const term = new AbortController()
    const end = () => term.abort(signal.reason)
    signal.addEventListener('abort', end, { once: true })
    leaderStatus.set({ name: lease.name }, 1)
    log.info({ lease: lease.name }, 'became leader')
    const work = lead(term.signal).catch((err: unknown) => {
      log.error({ error: err }, 'leading failed')
      end() // a leader that does nothing must not keep the others from it
    })
    try {
      await this.#renewUntilLost(term.signal)
    } finally {
      term.abort(new Error('leadership lost'))
      signal.removeEventListener('abort', end)
      leaderStatus.set({ name: lease.name }, 0)
      await work
      if (!signal.aborted) log.error({ lease: lease.name }, 'lost leadership')
      await this.#release()
      await sleep(this.#options.retryPeriodMs, signal)
    }
  }

  async #renewUntilLost(term: AbortSignal): Promise<void> {
    let renewedAt = performance.now()
    while (!term.aborted) {
      await sleep(this.#options.retryPeriodMs, term)
      if (term.aborted) return
      const startedAt = performance.now()
      // After a long stop (SIGSTOP, a frozen machine) someone else may lead: no try to renew can make up for that.
      if (startedAt - renewedAt > this.#options.leaseDurationMs) return
      if (await this.#tryAcquire(term)) renewedAt = startedAt
      else if (performance.now() - renewedAt > this.#options.renewDeadlineMs) return
    }
  }

  async #tryAcquire(signal: AbortSignal): Promise<boolean> {
    const { client, lease: key, log } = this.#options
    try {
      const bounded = AbortSignal.any([signal, AbortSignal.timeout(this.#options.renewDeadlineMs)])
      const current = await client.get(LeaseKind, key, bounded)
      this.#observe(current)
      if (!current) this.#observe(await client.create(LeaseKind, this.#claim(undefined), bounded))
      else if (this.#holds(current) || this.#isFree(current))
        this.#observe(await client.replace(LeaseKind, this.#claim(current), bounded))
      return this.leading
    } catch (err) {
      if (isStatus(err, 409)) return false // somebody was faster
      if (!signal.aborted)
        log.error(
          { lease: key.name, error: messageOf(err) },
          err instanceof ApiError && err.status ? 'lease refused' : 'lease not reachable',
        )
      return false
    }
  }

  #observe(lease: Lease | undefined): void {
    this.lease = lease
    const version = lease?.metadata.resourceVersion ?? ''
    if (this.#seen?.version !== version) this.#seen = { version, at: performance.now() }
  }

  #holds(lease: Lease | undefined): boolean {
    return lease?.spec?.holderIdentity === this.#options.identity
  }

  #isFree(lease: Lease): boolean {
    if (!lease.spec?.holderIdentity) return true
    const theirsMs = (lease.spec.leaseDurationSeconds ?? 0) * 1000
    return performance.now() - this.#seen!.at > Math.max(theirsMs, 1000)
  }

  #claim(current: Lease | undefined): Lease {
    const { identity, lease: key, leaseDurationMs, annotations } = this.#options
    const now = new Date().toISOString().replace('Z', '000Z') // MicroTime
    const renewing = this.#holds(current)
    return {
      ...current,
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: {
        ...current?.metadata,
        namespace: key.namespace,
        name: key.name,
        annotations: { ...current?.metadata.annotations, ...annotations },
      },
      spec: {
        holderIdentity: identity,
        leaseDurationSeconds: Math.max(1, Math.ceil(leaseDurationMs / 1000)),
        acquireTime: renewing && current?.spec?.acquireTime ? current.spec.acquireTime : now,
        renewTime: now,
        leaseTransitions: (current?.spec?.leaseTransitions ?? 0) + (current && !renewing ? 1 : 0),
      },
    }
  }

  /** An empty holder lets the next one in at once. */
  async #release(): Promise<void> {
    if (!this.leading || !this.lease) return
    const released: Lease = { ...this.lease, spec: { ...this.lease.spec, holderIdentity: '', leaseDurationSeconds: 1 } }
    try {
      this.#observe(await this.#options.client.replace(LeaseKind, released, AbortSignal.timeout(5_000)))
    } catch (err) {
      this.#options.log.info({ error: messageOf(err) }, 'could not give the lease back; it runs out by itself')
    }
  }
}
