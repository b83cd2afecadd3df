import assert from 'node:assert/strict'
import { clientFor, makeNamespace, sharedControlPlane } from '../../e2e/shared-control-plane.ts'
import type { Client } from './client.ts'
import { eventually } from './eventually.ts'
import { LeaderElector, type Lease, LeaseKind } from './lease.ts'
import { makeLogger } from './log.ts'

const times = { leaseDurationMs: 3_000, renewDeadlineMs: 2_000, retryPeriodMs: 300 }

describe('leader election on a real API server', function () {
  this.timeout(120_000)
  let client: Client
  let namespace: string

  beforeEach(async () => {
    client = clientFor((await sharedControlPlane()).kubeconfig)
    namespace = await makeNamespace(client)
  })

  interface Candidate {
    elector: LeaderElector
    stop: AbortController
    running: Promise<void>
    /** Whether `lead` is running. */
    leads: boolean
    terms: number
  }

  function startCandidate(identity: string, own: Client = client): Candidate {
    const elector = new LeaderElector({
      ...times,
      client: own,
      log: makeLogger('error'),
      lease: { namespace, name: 'test' },
      identity,
      annotations: { storage: identity },
    })
    const stop = new AbortController()
    const candidate: Candidate = { elector, stop, running: Promise.resolve(), leads: false, terms: 0 }
    candidate.running = elector.run(stop.signal, async (term) => {
      candidate.leads = true
      candidate.terms++
      await new Promise<void>((resolve) => term.addEventListener('abort', () => resolve(), { once: true }))
      candidate.leads = false
    })
    return candidate
  }

  const readLease = async () => (await client.get<Lease>(LeaseKind, { namespace, name: 'test' }))!

  it('lets one of three lead and never two, and hands over at once when the leader stops', async () => {
    const candidates = ['a', 'b', 'c'].map((name) => startCandidate(name))
    const leaders = () => candidates.filter(({ leads }) => leads)
    try {
      for (let round = 0; round < 2; round++) {
        await eventually(() => leaders().length === 1)
        const [leader] = leaders()
        assert.equal((await readLease()).spec?.holderIdentity, leader!.elector.lease?.spec?.holderIdentity)
        leader!.stop.abort()
        await leader!.running
        assert.ok(leaders().length <= 1)
      }
      await eventually(() => leaders().length === 1)
      assert.equal((await readLease()).spec?.leaseTransitions, 2)
    } finally {
      for (const { stop } of candidates) stop.abort()
      await Promise.all(candidates.map(({ running }) => running))
    }
  })

  it('takes over from a leader that no longer renews, but only when its lease has run out on our own clock', async () => {
    const dead: Lease = {
      metadata: { namespace, name: 'test' },
      // A clock that is hours behind: comparing it with ours would elect a second leader at once.
      spec: {
        holderIdentity: 'dead',
        leaseDurationSeconds: 2,
        renewTime: '2020-01-01T00:00:00.000000Z',
        leaseTransitions: 4,
      },
    }
    await client.create(LeaseKind, dead)
    const candidate = startCandidate('heir')
    const startedAt = performance.now()
    try {
      await eventually(() => candidate.leads)
      assert.ok(performance.now() - startedAt >= 2_000, 'the lease was respected for its length')
      assert.equal((await readLease()).spec?.leaseTransitions, 5)
      assert.equal((await readLease()).metadata.annotations?.storage, 'heir')
    } finally {
      candidate.stop.abort()
      await candidate.running
    }
    assert.equal((await readLease()).spec?.holderIdentity, '')
  })

  it('ends the term of a leader that cannot reach the API server, before another may take over', async () => {
    const own = clientFor((await sharedControlPlane()).kubeconfig)
    const candidate = startCandidate('cut-off', own)
    try {
      await eventually(() => candidate.leads)
      const refuse = () => Promise.reject(new Error('connection refused'))
      own.get = refuse
      own.replace = refuse
      await eventually(() => !candidate.leads)
      assert.equal((await readLease()).spec?.holderIdentity, 'cut-off')
      const heir = startCandidate('heir')
      await eventually(() => heir.leads)
      assert.equal(candidate.leads, false)
      heir.stop.abort()
      await heir.running
    } finally {
      candidate.stop.abort()
      await candidate.running
    }
  })

  it('gives another candidate its turn when leading fails', async () => {
    const failing = new LeaderElector({
      ...times,
      client,
      log: makeLogger('error'),
      lease: { namespace, name: 'test' },
      identity: 'failing',
    })
    const stop = new AbortController()
    let failures = 0
    const running = failing.run(stop.signal, async () => {
      failures++
      throw new Error('cannot lead')
    })
    await eventually(() => failures > 1)
    stop.abort()
    await running
    const heir = startCandidate('heir')
    await eventually(() => heir.leads)
    heir.stop.abort()
    await heir.running
  })
})
