import { StalledError } from '../runtime/errors.ts'
import type { GitRepository } from './types.ts'

/**
 * Throws a StalledError that names the first field of the spec which asks for something that is still to come. An artifact made without it
 * would look as if it had been honoured, which is worst for `verify`.
 */
export function refuseUnsupported({ spec }: GitRepository): void {
  const asked: Record<string, unknown> = {
    'spec.verify': spec.verify,
    'spec.provider': spec.provider === 'generic' ? undefined : spec.provider,
    'spec.serviceAccountName': spec.serviceAccountName,
    'spec.proxySecretRef': spec.proxySecretRef,
    'spec.include': spec.include?.length,
    'spec.recurseSubmodules': spec.recurseSubmodules,
    'spec.sparseCheckout': spec.sparseCheckout?.length,
  }
  const field = Object.keys(asked).find((name) => asked[name])
  if (field) throw new StalledError('UnsupportedFeature', `${field} is not supported yet`)
}
