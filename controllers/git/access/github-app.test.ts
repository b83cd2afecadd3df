import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { startGitServer, type GitServer } from '../../../e2e/git-server.ts'
import { startForwardProxy } from '../../../e2e/tools/forward-proxy.ts'
import { makeAuthority, makeKeyPair } from '../../../e2e/tools/certificates.ts'
import { startGithubApi, type GithubOptions, type TokenIssuer } from '../../../e2e/tools/token-issuers.ts'
import { makeIdentity } from '../../source/identity/identity.ts'
import { contextOf, failureOf } from '../test-support.ts'
import { HttpRemote } from '../protocol/http-remote.ts'
import { accessFor, type Access } from './access.ts'

const pair = generateKeyPairSync('rsa', { modulusLength: 2048 })
const privateKey = pair.privateKey.export({ type: 'pkcs1', format: 'pem' })
const options = { appId: 12345, publicKey: pair.publicKey, owner: 'acme', kind: 'orgs', installation: 77 } as const

describe('an App of GitHub', function () {
  this.timeout(30_000)
  let github: TokenIssuer
  let identity: ReturnType<typeof newIdentity>
  const newIdentity = () =>
    makeIdentity({
      featureGates: { CacheSecretsAndConfigMaps: false, ObjectLevelWorkloadIdentity: false },
      defaultServiceAccount: '',
      tokenCacheMaxSize: 100,
      tokenCacheMaxDuration: 3_600_000,
    })

  async function start(more: Partial<GithubOptions> = {}): Promise<void> {
    github = await startGithubApi({ ...options, ...more })
    identity = newIdentity()
  }
  afterEach(() => github.stop())

  function accessOf(data: Record<string, string> = {}, proxy?: Record<string, string>): Promise<Access> {
    const creds = {
      githubAppID: '12345',
      githubAppPrivateKey: privateKey,
      githubAppBaseURL: `${github.url}/api/v3/`,
      ...data,
    }
    const spec = { provider: 'github', secretRef: { name: 'app' } } as const
    const proxied = proxy ? { proxySecretRef: { name: 'proxy' } } : {}
    const ctx = contextOf(AbortSignal.timeout(20_000), { app: creds, proxy: proxy ?? {} })
    const obj = { metadata: { name: 'x', namespace: 'ns' }, spec: { ...spec, ...proxied } }
    return accessFor(obj, { href: 'https://github.example/acme/app' }, ctx, identity)
  }
  const byId = { githubAppInstallationID: '77' }
  const basic = (token: string) => `Basic ${Buffer.from(`x-access-token:${token}`).toString('base64')}`

  it('gets a token of its installation, once for all who ask', async () => {
    await start()
    const accesses = await Promise.all([accessOf(byId), accessOf(byId)])
    accesses.push(await accessOf(byId))
    for (const { authorization, secrets } of accesses) {
      assert.equal(authorization, basic('ghs_hunter2_1'))
      assert.ok(secrets.includes('ghs_hunter2_1'))
    }
    assert.deepEqual(github.requests, ['POST /api/v3/app/installations/77/access_tokens'])
  })

  for (const kind of ['orgs', 'users'] as const) {
    it(`is found by the name of its owner (${kind})`, async () => {
      await start({ kind })
      const { authorization } = await accessOf({ githubAppInstallationOwner: 'acme' })
      assert.equal(authorization, basic('ghs_hunter2_1'))
      const looked = kind === 'orgs' ? ['orgs'] : ['orgs', 'users']
      const paths = looked.map((part) => `GET /api/v3/${part}/acme/installation`)
      assert.deepEqual(github.requests, [...paths, 'POST /api/v3/app/installations/77/access_tokens'])
    })
  }

  it('stays who it is when its token is renewed, and is another with another key', async () => {
    await start({ lifetimeMs: -1 })
    const [first, second] = [await accessOf(byId), await accessOf(byId)]
    assert.notEqual(first.authorization, second.authorization)
    assert.equal(first.key, second.key)
    const other = makeAuthority('a proxy').certificate
    assert.notEqual((await accessOf({ ...byId, 'ca.crt': other })).key, first.key)
  })

  it('opens a repository', async () => {
    await start()
    const auth = { user: 'x-access-token', password: 'ghs_hunter2_1' }
    const server: GitServer = await startGitServer({ auth })
    try {
      await (await server.repository('app.git')).commit({ a: 'a' }, 'first')
      const remote = new HttpRemote(`${server.url}/app.git`, await accessOf(byId))
      const refs = await remote.listRefs({ prefixes: ['refs/'], keep: () => true }, AbortSignal.timeout(10_000))
      assert.equal(refs.length, 1)
    } finally {
      await server.stop()
    }
  })

  it('is asked through the proxy and trusts the authority that the Secrets name', async () => {
    const authority = makeAuthority('a company')
    await start({ tls: authority.issue({ commonName: 'ghe.example', hosts: ['ghe.example'] }) })
    const proxy = await startForwardProxy({ hosts: { 'ghe.example': '127.0.0.1' } })
    try {
      const { port } = new URL(github.url)
      const data = { ...byId, githubAppBaseURL: `https://ghe.example:${port}/api/v3` }
      const trusted = { ...data, 'ca.crt': authority.certificate }
      assert.equal((await accessOf(trusted, { address: proxy.url })).authorization, basic('ghs_hunter2_1'))
      assert.match((await failureOf(accessOf(data, { address: proxy.url }))).message, /certificate|issuer/)
      assert.deepEqual([...new Set(proxy.counters().targets)], [`ghe.example:${port}`])
    } finally {
      await proxy.stop()
    }
  })

  const otherKey = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey
  for (const [what, data, message] of [
    ['no number', { ...byId, githubAppID: 'x' }, /secret 'ns\/app': 'githubAppID' is not a number$/],
    ['no installation', {}, /must contain exactly one of 'githubAppInstallationID' and 'githubAppInstallationOwner'$/],
    ['two installations', { ...byId, githubAppInstallationOwner: 'acme' }, /must contain exactly one of/],
    ['an owner that is a path', { githubAppInstallationOwner: '../x' }, /is not the name of a user or organization$/],
    ['no key', { ...byId, githubAppPrivateKey: 'hunter2' }, /'githubAppPrivateKey' is not a private key in PEM$/],
    ['another kind of key', { ...byId, githubAppPrivateKey: makeKeyPair().privateKey }, /is not an RSA key$/],
    [
      'the key of another App',
      { ...byId, githubAppPrivateKey: otherKey.export({ type: 'pkcs8', format: 'pem' }) as string },
      /failed to get token of GitHub App installation 77: HTTP 401: A JSON web token could not be decoded$/,
    ],
    ['the id of another App', { ...byId, githubAppID: '1' }, /HTTP 401: 'Issuer' claim/],
    ['an unknown installation', { githubAppInstallationID: '1' }, /installation 1: HTTP 404: Not Found$/],
    [
      'an unknown owner',
      { githubAppInstallationOwner: 'other' },
      /failed to find installation of GitHub App 12345 for 'other': HTTP 404: Not Found, HTTP 404: Not Found$/,
    ],
    ['a bad base URL', { ...byId, githubAppBaseURL: 'file:///etc' }, /'githubAppBaseURL' is not an http or https URL$/],
  ] as [string, Record<string, string>, RegExp][]) {
    it(`fails with ${what}`, async () => {
      await start()
      const err = await failureOf(accessOf(data))
      assert.equal(err.reason, 'AuthenticationFailed')
      assert.match(err.message, /^failed to configure authentication options: /)
      assert.match(err.message, message)
      assert.doesNotMatch(err.message, /hunter2/)
      assert.equal(github.issued(), 0)
    })
  }
})
