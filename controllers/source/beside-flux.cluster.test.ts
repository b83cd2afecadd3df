import assert from 'node:assert/strict'
import { clientFor, makeNamespace, sharedControlPlane } from '../../e2e/shared-control-plane.ts'
import type { Client } from '../runtime/client.ts'
import { makeCommand, type RuntimeFlags } from '../runtime/flags.ts'
import { type Lease, LeaseKind } from '../runtime/lease.ts'
import { Manager } from '../runtime/manager.ts'
import { refuseBesideFlux } from './beside-flux.ts'

describe('beside a running Flux', () => {
  let client: Client
  let namespace: string
  let kubeconfig: string

  beforeEach(async () => {
    kubeconfig = (await sharedControlPlane()).kubeconfig
    client = clientFor(kubeconfig)
    namespace = await makeNamespace(client)
  })

  const leaseOf = (spec: Lease['spec']) =>
    client.create<Lease>(LeaseKind, {
      metadata: { namespace, name: 'source-controller-leader-election' },
      ...(spec && { spec }),
    })
  const renewed = (agoMs: number) => new Date(Date.now() - agoMs).toISOString().replace('Z', '000Z')

  function start(...flags: string[]): Promise<void> {
    const command = makeCommand('test', 'test')
    command.parse([`--kubeconfig=${kubeconfig}`, `--flux-namespace=${namespace}`, '--log-level=error', ...flags], {
      from: 'user',
    })
    return refuseBesideFlux(new Manager(command.opts<RuntimeFlags>(), 'test'), AbortSignal.timeout(10_000))
  }

  it('a controller refuses to start, and says what to do', async () => {
    await leaseOf({ holderIdentity: 'source-controller-1', leaseDurationSeconds: 35, renewTime: renewed(1_000) })
    await assert.rejects(start(), /source-controller-1.*scale it to 0.*--watch-label-selector.*--take-over/s)
  })

  it('it starts when told to take over, and when the objects are divided by labels', async () => {
    await leaseOf({ holderIdentity: 'source-controller-1', leaseDurationSeconds: 35, renewTime: renewed(1_000) })
    await start('--take-over')
    await start('--watch-label-selector=sharding.fluxcd.io/key=a')
  })

  it('it starts when the lease has run out, was given back, or was never there', async () => {
    await start()
    await leaseOf({ holderIdentity: 'source-controller-1', leaseDurationSeconds: 35, renewTime: renewed(60_000) })
    await start()
    await client.patch(
      LeaseKind,
      { namespace, name: 'source-controller-leader-election' },
      { spec: { holderIdentity: '', renewTime: renewed(0) } },
    )
    await start()
  })

  it('it does not start when it is not allowed to look, and says which right it lacks', async () => {
    const admin = kubeconfig
    kubeconfig = await (await sharedControlPlane()).userKubeconfig('nobody')
    await assert.rejects(start(), /cannot tell whether Flux runs: .*grant get on that lease/)
    kubeconfig = admin
  })
})
