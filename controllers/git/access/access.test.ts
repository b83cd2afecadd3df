import assert from 'node:assert/strict'
import { ReconcileError } from '../../runtime/errors.ts'
import { accessFromSecret, basicAccess } from './access.ts'

const secret = (data: Record<string, string>) =>
  accessFromSecret(Object.fromEntries(Object.entries(data).map(([k, v]) => [k, Buffer.from(v)])), 'ns/creds')

describe('the credentials in a Secret', () => {
  it('are username and password', () => {
    const access = secret({ username: 'me', password: 'pass:word' })!
    assert.equal(access.authorization, `Basic ${Buffer.from('me:pass:word').toString('base64')}`)
    assert.ok(access.secrets.includes('pass:word'))
    assert.match(access.key, /^[0-9a-f]{64}$/)
  })

  it('have one key however often they are read, and another for any other value', () => {
    const keys = [
      secret({ username: 'me', password: 'one' }),
      secret({ username: 'me', password: 'one' }),
      secret({ username: 'me', password: 'two' }),
      secret({ username: 'm', password: 'eone' }),
    ].map((access) => access?.key)
    assert.equal(keys[0], keys[1])
    assert.equal(new Set(keys).size, 3)
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
    [{ bearerToken: 'hunter2' }, "secret 'ns/creds' contains 'bearerToken', which is not supported yet"],
    [
      { username: 'me', password: 'hunter2', 'tls.crt': 'x' },
      "secret 'ns/creds' contains 'tls.crt', which is not supported yet",
    ],
  ] as const) {
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
