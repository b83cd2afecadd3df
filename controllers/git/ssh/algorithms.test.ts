import assert from 'node:assert/strict'
import { InvalidArgumentError } from 'commander'
import { algorithmsArg } from './algorithms.ts'

describe('the flags for algorithms of ssh', () => {
  it('are lists, and add up', () => {
    const first = algorithmsArg('kex')('curve25519-sha256, ecdh-sha2-nistp256', undefined)
    assert.deepEqual(algorithmsArg('kex')('diffie-hellman-group14-sha256', first), [
      'curve25519-sha256',
      'ecdh-sha2-nistp256',
      'diffie-hellman-group14-sha256',
    ])
    assert.deepEqual(algorithmsArg('kex')('', undefined), [])
    assert.deepEqual(algorithmsArg('HostKeyAlgorithms')('ssh-rsa,rsa-sha2-512', undefined), ['ssh-rsa', 'rsa-sha2-512'])
  })

  for (const [text, why] of [
    ['curve25519-sha256,', /is no name/],
    ['+curve25519-sha256', /is no name/],
    ['a b', /is no name/],
    ['-oProxyCommand=x', /is no name/],
    ['ssh-ed25519', /ssh knows no 'ssh-ed25519'/],
  ] as const) {
    it(`are refused with '${text}'`, () => {
      assert.throws(
        () => algorithmsArg('kex')(text, undefined),
        (err) => err instanceof InvalidArgumentError && why.test(err.message),
      )
    })
  }
})
