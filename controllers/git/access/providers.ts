import { messageOf, ReconcileError, StalledError } from '../../runtime/errors.ts'
import { azureToken } from '../../source/identity/azure.ts'
import { type Identity, serviceAccountOf } from '../../source/identity/identity.ts'
import type { TokenUser } from '../../source/identity/token-cache.ts'
import type { Transport } from '../../source/transport/transport.ts'
import { sanitize } from '../failure.ts'
import type { RepositoryUrl } from '../url.ts'
import type { AccessContext, AccessSpec, ReadSecret } from './access.ts'
import { codeCommitCredentials } from './code-commit.ts'
import { bearerCredentials, type Credentials } from './credentials.ts'
import { githubAppCredentials } from './github-app.ts'

export type Provider = 'generic' | 'aws' | 'azure' | 'github'

export interface ProviderRequest {
  obj: AccessSpec
  url: RepositoryUrl
  secret: ReadSecret
  transport: Transport
  identity: Identity
  ctx: AccessContext
}

const reason = 'InvalidProviderConfiguration'
/** Azure DevOps, as Entra names it. */
const devOpsHost = /^(?:dev\.azure\.com|[a-z0-9-]+\.visualstudio\.com)$/
const devOpsScope = '499b84ac-1321-427f-aa17-267ca6975798/.default'

/** Throws a StalledError or ReconcileError `InvalidProviderConfiguration` where the provider cannot work with the rest of the spec. */
export function checkProvider({ spec }: AccessSpec, url: RepositoryUrl, { data, shown }: ReadSecret): void {
  const { provider = 'generic', serviceAccountName } = spec
  if (serviceAccountName && provider !== 'azure' && provider !== 'aws')
    throw new StalledError(reason, "serviceAccountName can only be set when provider is 'azure' or 'aws'")
  if (provider !== 'generic' && !/^https?:/.test(url.href))
    throw new StalledError(reason, `provider '${provider}' needs an http or https URL`)
  const hasApp = Boolean(data['githubAppID']?.length)
  const needed = 'secretRef with github app data must be specified when provider is set to github'
  if (provider === 'github' && !spec.secretRef) throw new StalledError(reason, needed)
  if (provider === 'github' && !hasApp) throw new ReconcileError(reason, needed)
  if (provider !== 'github' && hasApp)
    throw new ReconcileError(reason, `secretRef '${shown}' has github app data but provider is not set to github`)
}

/** What the provider issues; undefined for `generic`. Throws an Error that says what went wrong, or a StalledError `FeatureGateDisabled`. */
export async function providerCredentials(request: ProviderRequest): Promise<Credentials | undefined> {
  const { obj, url, transport, identity, ctx } = request
  const { provider = 'generic', serviceAccountName } = obj.spec
  const { name = '', namespace = '' } = obj.metadata
  const user: TokenUser = { kind: 'GitRepository', name, namespace }
  if (provider === 'generic') return undefined
  if (provider === 'github') return await githubAppCredentials(request.secret, transport, user, identity.tokens, ctx)
  const serviceAccount = serviceAccountOf(serviceAccountName, identity)
  if (transport.tls?.ca && !serviceAccount)
    throw new Error(`secret '${request.secret.shown}': 'ca.crt' cannot be used with the identity of the controller`)
  const asked = { serviceAccount, user, proxy: transport.proxy }
  const who = `${provider}\0${serviceAccount ? `${namespace}/${serviceAccount}` : ''}`
  try {
    if (provider === 'aws') return await codeCommitCredentials(url, asked, who, identity.tokens, ctx)
    checkDevOps(url)
    return bearerCredentials(await azureToken({ scope: devOpsScope, ...asked }, identity.tokens, ctx), who)
  } catch (err) {
    // What the libraries say goes over several lines, and may repeat what a server said.
    throw new Error(sanitize(messageOf(err)), { cause: err })
  }
}

/** The token speaks for the controller, or for a service account: whoever may write a URL must not be able to send it anywhere. */
function checkDevOps({ href }: RepositoryUrl): void {
  const { hostname, protocol } = new URL(href)
  if (!devOpsHost.test(hostname)) throw new Error(`'${hostname}' is not a host of Azure DevOps`)
  if (protocol !== 'https:') throw new Error('Azure DevOps is reached over https alone')
}
