import assert from 'node:assert/strict'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { makeAuthority } from '../../../e2e/tools/certificates.ts'
import { startForwardProxy } from '../../../e2e/tools/forward-proxy.ts'
import { startEntra, startSts, type TokenIssuer } from '../../../e2e/tools/token-issuers.ts'
import { StalledError } from '../../runtime/errors.ts'
import { makeIdentity } from '../../source/identity/identity.ts'
import { contextOf, failureOf } from '../test-support.ts'
import { accessFor, type Access, type AccessSpec } from './access.ts'
import { codeCommitLogin } from './code-commit.ts'

const flags = {
  featureGates: { CacheSecretsAndConfigMaps: false, ObjectLevelWorkloadIdentity: false },
  defaultServiceAccount: '',
  tokenCacheMaxSize: 100,
  tokenCacheMaxDuration: 3_600_000,
}
const devOps = 'https://dev.azure.com/org/project/_git/app'
const codeCommit = 'https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/my-app'

/** Runs with these environment variables, and with none of the SDKs' own beside them. */
async function withEnvironment<R>(variables: Record<string, string>, work: () => Promise<R>): Promise<R> {
  const before = { ...process.env }
  for (const name of Object.keys(process.env)) if (/^(?:AWS|AZURE)_/.test(name)) delete process.env[name]
  Object.assign(process.env, variables)
  try {
    return await work()
  } finally {
    process.env = before
  }
}

describe('the identity of the controller', function () {
  this.timeout(30_000)
  const authority = makeAuthority('of a cloud')
  const roots = getCACertificates('default')
  let identity: ReturnType<typeof makeIdentity>

  before(() => setDefaultCACertificates([...roots, authority.certificate]))
  after(() => setDefaultCACertificates(roots))
  beforeEach(() => (identity = makeIdentity(flags)))

  function accessOf(url: string, spec: AccessSpec['spec'], secrets: Record<string, Record<string, string>> = {}) {
    const ctx = contextOf(AbortSignal.timeout(20_000), secrets)
    return accessFor({ metadata: { name: 'x', namespace: 'ns' }, spec }, { href: url }, ctx, identity)
  }

  describe('at Azure', () => {
    let entra: TokenIssuer
    const application = {
      AZURE_TENANT_ID: '11111111-2222-3333-4444-555555555555',
      AZURE_CLIENT_ID: '66666666-7777-8888-9999-000000000000',
      AZURE_CLIENT_SECRET: 'hunter2-secret',
    }
    beforeEach(async () => {
      entra = await startEntra({ tls: authority.issue({ commonName: 'entra', hosts: ['127.0.0.1', 'localhost'] }) })
    })
    afterEach(() => entra.stop())
    const open = (spec: Partial<AccessSpec['spec']> = {}, secrets = {}, url = devOps): Promise<Access> =>
      withEnvironment({ ...application, AZURE_AUTHORITY_HOST: entra.url }, () =>
        accessOf(url, { provider: 'azure', ...spec }, secrets),
      )

    it('gets a token for DevOps, once', async () => {
      const [first, second] = [await open(), await open()]
      assert.deepEqual(
        [first.authorization, second.authorization],
        ['Bearer entra_hunter2_1', 'Bearer entra_hunter2_1'],
      )
      assert.ok(first.secrets.includes('entra_hunter2_1'))
      const [{ client_id: id, client_secret: secret, scope } = {}] = entra.forms
      assert.deepEqual([id, secret], [application.AZURE_CLIENT_ID, application.AZURE_CLIENT_SECRET])
      assert.match(scope ?? '', /^499b84ac-1321-427f-aa17-267ca6975798\/\.default\b/)
      assert.equal(entra.forms.length, 1)
      identity = makeIdentity(flags)
      const renewed = await open()
      assert.deepEqual([renewed.authorization, renewed.key], ['Bearer entra_hunter2_2', first.key])
    })

    it('sends no token anywhere but to Azure DevOps, and not in the clear', async () => {
      for (const [url, why] of [
        ['https://evil.example/dev.azure.com/x', "'evil.example' is not a host of Azure DevOps"],
        ['https://dev.azure.com.evil.example/x', "'dev.azure.com.evil.example' is not a host of Azure DevOps"],
        ['http://dev.azure.com/x', 'Azure DevOps is reached over https alone'],
      ] as const) {
        assert.equal((await failureOf(open({}, {}, url))).message, `failed to configure authentication options: ${why}`)
      }
      assert.equal(entra.forms.length, 0)
      assert.ok((await open({}, {}, 'https://org.visualstudio.com/x')).authorization)
    })

    it('asks through the proxy of the object', async () => {
      const proxy = await startForwardProxy({ auth: { username: 'me', password: 'pw' } })
      try {
        const secrets = { proxy: { address: proxy.url, username: 'me', password: 'pw' } }
        await open({ proxySecretRef: { name: 'proxy' } }, secrets)
        assert.deepEqual([...new Set(proxy.counters().targets)], [new URL(entra.url).host])
      } finally {
        await proxy.stop()
      }
    })

    it('is not mixed with the credentials of a Secret', async () => {
      const err = await failureOf(open({ secretRef: { name: 'me' } }, { me: { username: 'me', password: 'hunter2' } }))
      assert.match(err.message, /secret 'ns\/me' has credentials beside those of spec\.provider$/)
    })

    it('says whom nobody trusts', async () => {
      await entra.stop()
      const err = await failureOf(open())
      assert.equal(err.reason, 'AuthenticationFailed')
      assert.match(err.message, /^failed to configure authentication options: /)
      assert.doesNotMatch(err.message, /hunter2/)
    })
  })

  describe('at AWS', () => {
    const keys = { AWS_ACCESS_KEY_ID: 'AKIAIOSFODNN7EXAMPLE', AWS_SECRET_ACCESS_KEY: 'hunter2-hunter2' }

    it('signs for CodeCommit as its own client does', () => {
      // As botocore and git-remote-codecommit have it.
      const secretAccessKey = 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY'
      const signature = '8e8347c23eda6d3645926f43ac91659ffd660c40d8ba915d6ee61b3f680dcb03'
      const at = new Date('2026-01-31T23:59:59.900Z')
      const own = { accessKeyId: 'AKIA', secretAccessKey }
      const login = { username: 'AKIA', password: `20260131T235959Z${signature}` }
      assert.deepEqual(codeCommitLogin(codeCommit, 'eu-west-1', own, at), login)
      const session = codeCommitLogin(codeCommit, 'eu-west-1', { ...own, sessionToken: 's+/=' }, at)
      assert.deepEqual(session, { ...login, username: 'AKIA%s+/=' })
    })

    it('logs in to CodeCommit', async () => {
      const open = () => withEnvironment(keys, () => accessOf(codeCommit, { provider: 'aws' }))
      const { authorization = '', secrets, key } = await open()
      const login = Buffer.from(authorization.replace('Basic ', ''), 'base64').toString()
      assert.match(login, /^AKIAIOSFODNN7EXAMPLE:\d{8}T\d{6}Z[0-9a-f]{64}$/)
      assert.ok(secrets.includes('hunter2-hunter2') && secrets.includes(login.split(':')[1]!))
      assert.equal((await open()).key, key)
    })

    for (const [url, why] of [
      ['https://codecommit.example/v1', /is not a host of AWS CodeCommit$/],
      ['https://git-codecommit.eu-west-1.amazonaws.com.evil/v1', /is not a host of AWS CodeCommit$/],
      ['http://git-codecommit.eu-west-1.amazonaws.com/v1', /AWS CodeCommit is reached over https alone$/],
    ] as const) {
      it(`does not log in to ${url}`, async () => {
        const err = await failureOf(withEnvironment(keys, () => accessOf(url, { provider: 'aws' })))
        assert.match(err.message, why)
      })
    }

    for (const proxied of [false, true]) {
      it(`takes a role by the token that is in a file of the pod${proxied ? ', through a proxy' : ''}`, async () => {
        const sts = await startSts()
        const me = { username: 'me', password: 'p@ss' }
        const proxy = await startForwardProxy({ auth: me })
        try {
          const role = 'arn:aws:iam::123456789012:role/controller'
          const variables = {
            AWS_WEB_IDENTITY_TOKEN_FILE: new URL(import.meta.url).pathname,
            AWS_ROLE_ARN: role,
            AWS_ENDPOINT_URL_STS: sts.url,
          }
          const spec = { provider: 'aws', ...(proxied ? { proxySecretRef: { name: 'proxy' } } : {}) } as const
          const secrets = { proxy: { address: proxy.url, ...me } }
          await withEnvironment(variables, () => accessOf(codeCommit, spec, secrets))
          assert.deepEqual([sts.forms[0]?.['Action'], sts.forms[0]?.['RoleArn']], ['AssumeRoleWithWebIdentity', role])
          const { targets, refused } = proxy.counters()
          assert.deepEqual([targets, refused], [proxied ? [new URL(sts.url).host] : [], 0])
        } finally {
          await proxy.stop()
          await sts.stop()
        }
      })
    }
  })

  for (const provider of ['azure', 'aws'] as const) {
    it(`is not shown at ${provider} to whom an authority of the object vouches for`, async () => {
      const url = provider === 'aws' ? codeCommit : devOps
      const secrets = { own: { 'ca.crt': authority.certificate } }
      const err = await failureOf(accessOf(url, { provider, secretRef: { name: 'own' } }, secrets))
      assert.match(err.message, /secret 'ns\/own': 'ca\.crt' cannot be used with the identity of the controller$/)
    })

    it(`is the only one at ${provider} as long as the feature gate is off`, async () => {
      const url = provider === 'aws' ? codeCommit : devOps
      const err = await failureOf(accessOf(url, { provider, serviceAccountName: 'me' }))
      assert.ok(err instanceof StalledError)
      const message =
        'to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller'
      assert.deepEqual([err.reason, err.message], ['FeatureGateDisabled', message])
    })
  }

  it('cannot be that of a default service account while the feature gate is off', () => {
    assert.throws(() => makeIdentity({ ...flags, defaultServiceAccount: 'me' }), /ObjectLevelWorkloadIdentity=true/)
  })
})
