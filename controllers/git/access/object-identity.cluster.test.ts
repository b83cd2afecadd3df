import assert from 'node:assert/strict'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { makeAuthority } from '../../../e2e/tools/certificates.ts'
import { claimsOf, startEntra, startSts, type TokenIssuer } from '../../../e2e/tools/token-issuers.ts'
import { clientFor, makeNamespace, sharedControlPlane } from '../../../e2e/shared-control-plane.ts'
import type { Client } from '../../runtime/client.ts'
import { eventuallyHolds } from '../../runtime/eventually.ts'
import type { Kind, KubeObject } from '../../runtime/kind.ts'
import { makeIdentity } from '../../source/identity/identity.ts'
import { contextOf, failureOf } from '../test-support.ts'
import { accessFor, type Access } from './access.ts'

const ServiceAccountKind: Kind = { group: '', version: 'v1', kind: 'ServiceAccount', plural: 'serviceaccounts' }
const rbac = (kind: string): Kind<KubeObject & Record<string, unknown>> => ({
  group: 'rbac.authorization.k8s.io',
  version: 'v1',
  kind,
  plural: `${kind.toLowerCase()}s`,
})
/** All that a controller needs beside what it has anyway. */
const rules = [
  { apiGroups: [''], resources: ['serviceaccounts'], verbs: ['get'] },
  { apiGroups: [''], resources: ['serviceaccounts/token'], verbs: ['create'] },
]
const devOps = 'https://dev.azure.com/org/project/_git/app'
const codeCommit = 'https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/my-app'
const role = 'arn:aws:iam::123456789012:role/reader'
const application = {
  'azure.workload.identity/client-id': '66666666-7777-8888-9999-000000000000',
  'azure.workload.identity/tenant-id': '11111111-2222-3333-4444-555555555555',
}

describe('the identity of a service account', () => {
  const authority = makeAuthority('of a cloud')
  const roots = getCACertificates('default')
  let admin: Client
  /** May do what the rules say, in its own namespace. */
  let client: Client
  let namespace: string
  let issuers: { entra: TokenIssuer; sts: TokenIssuer }

  before(async () => {
    setDefaultCACertificates([...roots, authority.certificate])
    const tls = authority.issue({ commonName: 'entra', hosts: ['127.0.0.1'] })
    issuers = { entra: await startEntra({ tls }), sts: await startSts() }
    process.env['AZURE_AUTHORITY_HOST'] = issuers.entra.url
    process.env['AWS_ENDPOINT_URL_STS'] = issuers.sts.url
  })
  after(async () => {
    setDefaultCACertificates(roots)
    delete process.env['AZURE_AUTHORITY_HOST']
    delete process.env['AWS_ENDPOINT_URL_STS']
    await issuers.entra.stop()
    await issuers.sts.stop()
  })

  beforeEach(async () => {
    const cluster = await sharedControlPlane()
    admin = clientFor(cluster.kubeconfig)
    namespace = await makeNamespace(admin)
    client = clientFor(await cluster.userKubeconfig(namespace))
    for (const { forms } of Object.values(issuers)) forms.length = 0
  })

  async function allow(): Promise<void> {
    const name = 'identities'
    await admin.create(rbac('Role'), { metadata: { name, namespace }, rules })
    await admin.create(rbac('RoleBinding'), {
      metadata: { name, namespace },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name },
      subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: namespace }],
    })
    await eventuallyHolds(async () => {
      await client.get(ServiceAccountKind, { namespace, name: 'default' })
    })
  }

  const makeAccount = (name: string, annotations: Record<string, string>) =>
    admin.create(ServiceAccountKind, { metadata: { name, namespace, annotations } })

  const newIdentity = (defaultServiceAccount = '') =>
    makeIdentity({
      featureGates: { CacheSecretsAndConfigMaps: false, ObjectLevelWorkloadIdentity: true },
      defaultServiceAccount,
      tokenCacheMaxSize: 100,
      tokenCacheMaxDuration: 3_600_000,
    })

  function accessOf(provider: 'aws' | 'azure', serviceAccountName?: string, identity = newIdentity()): Promise<Access> {
    const ctx = { ...contextOf(AbortSignal.timeout(30_000)), client }
    const href = provider === 'aws' ? codeCommit : devOps
    const obj = { metadata: { name: 'app', namespace }, spec: { provider, serviceAccountName } }
    return accessFor(obj, { href }, ctx, identity)
  }

  it('is exchanged for a token of Entra', async () => {
    await allow()
    await makeAccount('reader', application)
    const identity = newIdentity()
    const [first, second] = [await accessOf('azure', 'reader', identity), await accessOf('azure', 'reader', identity)]
    assert.match(first.authorization ?? '', /^Bearer entra_hunter2_\d+$/)
    assert.deepEqual(first, second)
    assert.equal(issuers.entra.forms.length, 1)
    const [{ client_id: id, client_assertion: assertion, client_assertion_type: type, scope } = {}] =
      issuers.entra.forms
    assert.equal(id, application['azure.workload.identity/client-id'])
    assert.equal(type, 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer')
    assert.match(scope ?? '', /^499b84ac-1321-427f-aa17-267ca6975798\/\.default\b/)
    const { aud, sub } = claimsOf(assertion ?? '')
    assert.deepEqual([aud, sub], [['api://AzureADTokenExchange'], `system:serviceaccount:${namespace}:reader`])
    const tenant = application['azure.workload.identity/tenant-id']
    assert.ok(issuers.entra.requests.some((request) => request.startsWith(`POST /${tenant}/oauth2/v2.0/token`)))
  })

  it('is exchanged for keys of AWS', async () => {
    await allow()
    await makeAccount('reader', { 'eks.amazonaws.com/role-arn': role })
    const { authorization = '', secrets } = await accessOf('aws', 'reader')
    const login = Buffer.from(authorization.replace('Basic ', ''), 'base64').toString()
    assert.match(login, /^ASIAEXAMPLE\d+%hunter2-session:\d{8}T\d{6}Z[0-9a-f]{64}$/)
    assert.ok(secrets.includes('hunter2-key'))
    const [{ Action, RoleArn, RoleSessionName, WebIdentityToken } = {}] = issuers.sts.forms
    assert.deepEqual([Action, RoleArn], ['AssumeRoleWithWebIdentity', role])
    assert.equal(RoleSessionName, `reader.${namespace}.eu-west-1.fluxcd.io`)
    const { aud, sub } = claimsOf(WebIdentityToken ?? '')
    assert.deepEqual([aud, sub], [['sts.amazonaws.com'], `system:serviceaccount:${namespace}:reader`])
  })

  it('is that of the default service account where the object names none', async () => {
    await allow()
    await makeAccount('everyone', application)
    const byDefault = await accessOf('azure', undefined, newIdentity('everyone'))
    assert.equal(byDefault.key, (await accessOf('azure', 'everyone')).key)
    await makeAccount('other', application)
    assert.notEqual(byDefault.key, (await accessOf('azure', 'other', newIdentity('everyone'))).key)
  })

  it('is another one at once when the service account is', async () => {
    await allow()
    await makeAccount('reader', application)
    const identity = newIdentity()
    await accessOf('azure', 'reader', identity)
    const clientId = '00000000-7777-8888-9999-000000000000'
    const annotations = { 'azure.workload.identity/client-id': clientId }
    await admin.patch(ServiceAccountKind, { namespace, name: 'reader' }, { metadata: { annotations } })
    await accessOf('azure', 'reader', identity)
    assert.deepEqual(issuers.entra.forms.map((form) => form['client_id']).slice(1), [clientId])
    await admin.delete(ServiceAccountKind, { namespace, name: 'reader' })
    assert.match((await failureOf(accessOf('azure', 'reader', identity))).message, /"reader" not found$/)
  })

  it('is refused where something is missing', async () => {
    const prefix = 'failed to configure authentication options: '
    const account = (name: string) => `service account '${namespace}/${name}'`
    const says = async (provider: 'aws' | 'azure', name: string, message: string) => {
      const err = await failureOf(accessOf(provider, name))
      assert.equal(err.reason, 'AuthenticationFailed')
      assert.ok(err.message.startsWith(prefix + message), err.message)
    }
    await says('azure', 'none', `failed to get ${account('none')}: serviceaccounts "none" is forbidden: `)
    await allow()
    await says('azure', 'none', `failed to get ${account('none')}: serviceaccounts "none" not found`)
    await makeAccount('plain', { 'eks.amazonaws.com/role-arn': 'me' })
    const missing = (annotation: string) => `${account('plain')}: annotation '${annotation}' is missing or not a`
    await says('azure', 'plain', missing('azure.workload.identity/client-id'))
    await says('aws', 'plain', missing('eks.amazonaws.com/role-arn'))
    assert.deepEqual([issuers.entra.forms, issuers.sts.forms], [[], []])
  })
})
