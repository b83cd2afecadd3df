import { StalledError } from '../../runtime/errors.ts'
import type { RuntimeFlags } from '../../runtime/flags.ts'
import { TokenCache } from './token-cache.ts'

/** Whose identity objects may use at cloud providers, and the tokens that were issued for it. */
export interface Identity {
  /** The feature gate ObjectLevelWorkloadIdentity: an object may have one of its own. */
  objectLevel: boolean
  /** The service account of objects that name none; empty: the controller's own identity. */
  defaultServiceAccount: string
  tokens: TokenCache
}

/** Throws an Error that says why the process cannot start. */
export function makeIdentity(
  flags: Pick<RuntimeFlags, 'featureGates' | 'defaultServiceAccount' | 'tokenCacheMaxSize' | 'tokenCacheMaxDuration'>,
): Identity {
  const objectLevel = flags.featureGates.ObjectLevelWorkloadIdentity
  const { defaultServiceAccount } = flags
  if (defaultServiceAccount && !objectLevel)
    throw new Error('--default-service-account needs --feature-gates=ObjectLevelWorkloadIdentity=true')
  const tokens = new TokenCache({
    maxEntries: flags.tokenCacheMaxSize,
    maxDurationMs: flags.tokenCacheMaxDuration,
  })
  return { objectLevel, defaultServiceAccount, tokens }
}

/** The identity of a process without flags, as they are by default. */
export const controllerIdentity: Identity = {
  objectLevel: false,
  defaultServiceAccount: '',
  tokens: new TokenCache({ maxEntries: 100, maxDurationMs: 3_600_000 }),
}

/** The service account whose identity an object uses; undefined means the controller's own. Throws a StalledError `FeatureGateDisabled`. */
export function serviceAccountOf(named: string | undefined, identity: Identity): string | undefined {
  if (named && !identity.objectLevel)
    throw new StalledError(
      'FeatureGateDisabled',
      'to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller',
    )
  return named || identity.defaultServiceAccount || undefined
}
