import assert from 'node:assert/strict'
import { ReconcileError, StalledError } from '../../runtime/errors.ts'
import { makeAuthority } from '../../../e2e/tools/certificates.ts'
import { sanitize } from '../failure.ts'
import { contextOf, failureOf } from '../test-support.ts'
import { parseRepositoryUrl } from '../url.ts'
import { accessFor, accessFromSecret, basicAccess, type AccessSpec } from './access.ts'

const authority = makeAuthority('an authority')
const { certificate, key } = authority.issue({ commonName: 'me' })
const { key: otherKey } = authority.issue({ commonName: 'other' })
const bytes = (data: Record<string, string>) =>
  Object.fromEntries(Object.entries(data).map(([name, text]) => [name, Buffer.from(text)]))
const secret = (data: Record<string, string>) => accessFromSecret(bytes(data), 'ns/creds')

/** The access of an object whose Secrets `creds` and `proxy` hold this. */
function accessOf(
  spec: AccessSpec['spec'],
  { url = 'https://host/app.git', creds = {}, proxy = {} } = {} as {
    url?: string
    creds?: Record<string, string>
    proxy?: Record<string, string>
  },
) {
  const ctx = contextOf(AbortSignal.timeout(10_000), { creds, proxy })
  return accessFor({ metadata: { name: 'app', namespace: 'ns' }, spec }, parseRepositoryUrl(url), ctx)
}
const named = { secretRef: { name: 'creds' } }
const proxied = { proxySecretRef: { name: 'proxy' } }

describe('the credentials in a Secret', () => {
  it('are username and password', () => {
    const access = secret({ username: 'me', password: 'pass:word' })!
    assert.equal(access.authorization, `Basic ${Buffer.from('me:pass:word').toString('base64')}`)
    assert.ok(access.secrets.includes('pass:word'))
    assert.match(access.key, /^[0-9a-f]{64}$/)
  })

  it('are a token', () => {
    const access = secret({ bearerToken: 'hunter2hunter2\n' })!
    assert.equal(access.authorization, 'Bearer hunter2hunter2')
    assert.deepEqual(access.secrets, ['hunter2hunter2'])
  })

  it('are certificates, under their names of now before those of old', () => {
    const now = { 'ca.crt': authority.certificate, 'tls.crt': certificate, 'tls.key': key }
    assert.deepEqual(secret(now)!.tls, { ca: authority.certificate, cert: certificate, key })
    const old = { caFile: authority.certificate, certFile: certificate, keyFile: key }
    assert.deepEqual(secret(old)!.tls, secret(now)!.tls)
    assert.deepEqual(secret({ ...now, caFile: 'x', certFile: 'x', keyFile: 'x' })!.tls, secret(now)!.tls)
    assert.deepEqual(secret({ 'ca.crt': authority.certificate })!.tls, { ca: authority.certificate })
  })

  it('have one key however often they are read, and another for any other value', async () => {
    const me = { username: 'me', password: 'one' }
    const same = [secret(me)!.key, (await accessOf(named, { creds: me })).key]
    assert.equal(new Set(same).size, 1)
    const others = [
      secret({ username: 'me', password: 'two' }),
      secret({ username: 'm', password: 'eone' }),
      secret({ bearerToken: 'bWU6b25l' }),
      secret({ ...me, 'ca.crt': authority.certificate }),
      secret({ 'ca.crt': authority.certificate }),
      secret({ 'tls.crt': certificate, 'tls.key': key }),
      await accessOf({ ...named, ...proxied }, { creds: me, proxy: { address: 'http://proxy:1' } }),
      await accessOf({ ...named, ...proxied }, { creds: me, proxy: { address: 'http://proxy:2' } }),
      await accessOf(proxied, { proxy: { address: 'http://proxy:2', username: 'me', password: 'one' } }),
    ].map((access) => access!.key)
    assert.equal(new Set([...same, ...others]).size, 1 + others.length)
  })

  it('are secret in the part that is: the name where there is no password', () => {
    assert.deepEqual(basicAccess('t/ken', '').secrets, ['dC9rZW46', 't/ken', 't%2Fken'])
    assert.ok(!basicAccess('someone', 'hunter2').secrets.includes('someone'))
  })

  it('are none where there is nothing for this transport', () => {
    assert.equal(secret({}), undefined)
    assert.equal(secret({ identity: 'key', known_hosts: 'host' }), undefined)
  })

  for (const [data, why] of [
    [{ username: 'me' }, "malformed basic auth - has 'username' but missing 'password'"],
    [{ password: 'hunter2' }, "malformed basic auth - has 'password' but missing 'username'"],
    [{ username: 'a:b', password: 'hunter2' }, "malformed basic auth - 'username' contains ':'"],
    [{ bearerToken: 'hunter2\r\nX: y' }, "'bearerToken' contains characters that no token has"],
    [
      { username: 'me', password: 'hunter2', bearerToken: 'hunter2' },
      "basic auth and bearer token cannot be set at the same time: 'username' and 'bearerToken'",
    ],
    [{ 'tls.crt': certificate }, "secret 'ns/creds' contains 'tls.crt' but missing 'tls.key'"],
    [{ 'tls.key': key }, "secret 'ns/creds' contains 'tls.key' but missing 'tls.crt'"],
    [{ certFile: certificate }, "secret 'ns/creds' contains 'certFile' but missing 'keyFile'"],
    [{ 'ca.crt': 'hunter2' }, "secret 'ns/creds': 'ca.crt' has no certificate in PEM"],
    [
      { 'ca.crt': `${authority.certificate}-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----\n` },
      "secret 'ns/creds': certificate 2 of 'ca.crt' is malformed",
    ],
    [{ 'tls.crt': certificate, 'tls.key': otherKey }, "secret 'ns/creds': 'tls.key' is not the key of 'tls.crt'"],
    [{ 'tls.crt': certificate, 'tls.key': 'hunter2' }, "secret 'ns/creds': the private key in 'tls.key' is malformed"],
  ] as [Record<string, string>, string][]) {
    it(`are refused with ${why}`, () => {
      assert.throws(
        () => secret(data),
        (err) => {
          assert.ok(err instanceof ReconcileError)
          assert.equal(err.reason, 'AuthenticationFailed')
          assert.equal(err.message, `failed to configure authentication options: ${why}`)
          assert.doesNotMatch(err.message, /hunter2/)
          return true
        },
      )
    })
  }
})

describe('the credentials in a URL', () => {
  it('are used where the Secret gives none', async () => {
    const url = 'https://me:hunter2@host/app.git'
    assert.deepEqual(await accessOf({}, { url }), basicAccess('me', 'hunter2'))
    const other = { username: 'you', password: 'hunter3' }
    assert.deepEqual(await accessOf(named, { url, creds: other }), secret(other))
    const { authorization, tls } = await accessOf(named, { url, creds: { 'ca.crt': authority.certificate } })
    assert.equal(authorization, basicAccess('me', 'hunter2').authorization)
    assert.ok(tls?.ca)
  })

  for (const userinfo of ['ghp_t0ken', 'ghp_t0ken:x-oauth-basic', 'x-access-token:ghp_t0ken']) {
    it(`are in no message: ${userinfo}@`, async () => {
      const { secrets } = await accessOf({}, { url: `https://${userinfo}@host/app.git` })
      const said = `no such user ghp_t0ken (https://${userinfo}@host/), ${Buffer.from(userinfo).toString('base64')}`
      assert.doesNotMatch(sanitize(said, secrets), /t0ken/)
      const whole = userinfo.includes(':') ? userinfo : `${userinfo}:`
      assert.ok(secrets.includes(Buffer.from(whole).toString('base64')))
    })
  }
})

describe('the proxy in a Secret', () => {
  it('has an address, a name and a password', async () => {
    const proxy = { address: 'https://proxy.example:8443/', username: 'me', password: 'p@ss/word' }
    const access = await accessOf(proxied, { proxy })
    assert.deepEqual(access.proxy, { url: 'https://proxy.example:8443', username: 'me', password: 'p@ss/word' })
    assert.ok(['p@ss/word', 'p%40ss%2Fword'].every((text) => access.secrets.includes(text)))
    const { proxy: within } = await accessOf(proxied, { proxy: { address: 'socks5://me:p%40ss@[::1]' } })
    assert.deepEqual(within, { url: 'socks5://[::1]:1080', username: 'me', password: 'p@ss' })
  })

  for (const [data, why] of [
    [{}, "key 'address' not found"],
    [{ address: 'proxy.example:80' }, "'address' must start with http://, https:// or socks5://"],
    [{ address: 'ftp://proxy' }, "'address' must start with http://, https:// or socks5://"],
    [{ address: 'http://' }, "'address' is not a URL"],
    [{ address: 'https://127.0.0.1' }, "'address' with https must name its host, not give an IP address"],
    [{ address: 'https://[::1]:1' }, "'address' with https must name its host, not give an IP address"],
    [{ address: 'http://-o/' }, "'address' has no valid host"],
    [{ address: 'http://proxy/path?query' }, "'address' must not have a path, a query or a fragment"],
    [{ address: 'http://pro\nxy' }, "'address' contains white space, a control character or a backslash"],
    [{ address: `http://${'a'.repeat(2048)}` }, "'address' is longer than 2048 characters"],
    [{ address: 'http://proxy', username: 'a\nb' }, "'username' contains a control character"],
    [{ address: 'http://proxy', username: 'a:b' }, "'username' contains ':'"],
    [
      { address: 'socks5://proxy', username: 'me', password: 'x'.repeat(256) },
      "'password' is longer than the 255 bytes that SOCKS5 allows",
    ],
  ] as [Record<string, string>, string][]) {
    it(`is refused with ${why}`, async () => {
      const err = await failureOf(accessOf(proxied, { proxy: data }))
      assert.deepEqual(
        [err.reason, err.message],
        ['AuthenticationFailed', `failed to configure proxy options: secret 'ns/proxy': ${why}`],
      )
    })
  }

  it('is refused where it is not there', async () => {
    const err = await failureOf(accessOf({ proxySecretRef: { name: 'none' } }))
    assert.equal(err.reason, 'AuthenticationFailed')
    assert.match(err.message, /^failed to configure proxy options: failed to get secret 'ns\/none': /)
  })
})

describe('spec.provider', () => {
  const app = { githubAppID: '1', githubAppPrivateKey: 'x', githubAppInstallationID: '2' }
  const needed = 'secretRef with github app data must be specified when provider is set to github'
  const cases: [string, boolean, AccessSpec['spec'], { url?: string; creds?: Record<string, string> }, string][] = [
    ['github without a Secret', true, { provider: 'github' }, {}, needed],
    ['github with another Secret', false, { provider: 'github', ...named }, {}, needed],
    [
      'generic with the data of an App',
      false,
      named,
      { creds: app },
      "secretRef 'ns/creds' has github app data but provider is not set to github",
    ],
    [
      'generic with a service account',
      true,
      { serviceAccountName: 'me' },
      {},
      "serviceAccountName can only be set when provider is 'azure' or 'aws'",
    ],
    [
      'azure over ssh',
      true,
      { provider: 'azure' },
      { url: 'ssh://git@host/x' },
      "provider 'azure' needs an http or https URL",
    ],
  ]
  for (const [what, stalls, spec, given, message] of cases) {
    it(`${stalls ? 'stalls' : 'fails'} as ${what}`, async () => {
      const err = await failureOf(accessOf(spec, given))
      assert.deepEqual([err.reason, err.message], ['InvalidProviderConfiguration', message])
      assert.equal(err instanceof StalledError, stalls)
    })
  }
})
