import { isStatus } from '../runtime/client.ts'
import { messageOf } from '../runtime/errors.ts'
import { type Lease, LeaseKind } from '../runtime/lease.ts'
import { leaseName } from '../runtime/lease-name.ts'
import type { Manager } from '../runtime/manager.ts'

/** The lease of Flux's source-controller. */
const fluxLease = 'source-controller-leader-election'

/**
 * Throws while Flux's own controller renews its lease: two controllers on the same objects would undo each other's status for ever.
 * `--take-over` says that they may, and a label selector that the objects are divided between the two.
 */
export async function refuseBesideFlux(manager: Manager, signal: AbortSignal): Promise<void> {
  const { fluxNamespace, takeOver, watchLabelSelector } = manager.flags
  if (takeOver || watchLabelSelector) return
  const key = { namespace: fluxNamespace, name: leaseName(fluxLease, '') }
  const lease = await manager.client.get(LeaseKind, key, signal).catch((err: unknown) => {
    const grant = isStatus(err, 403) ? '; grant get on that lease, or start with --take-over' : ''
    throw new Error(`cannot tell whether Flux runs: lease ${key.namespace}/${key.name}: ${messageOf(err)}${grant}`, {
      cause: err,
    })
  })
  if (!lease || !isHeld(lease)) return
  throw new Error(
    `Flux's source-controller (${lease.spec?.holderIdentity}) renews the lease ${key.namespace}/${key.name}: ` +
      'scale it to 0 first, divide the objects by --watch-label-selector, or start with --take-over',
  )
}

function isHeld({ spec }: Lease): boolean {
  if (!spec?.holderIdentity || !spec.renewTime) return false
  return Date.parse(spec.renewTime) + (spec.leaseDurationSeconds ?? 0) * 1000 > Date.now()
}
