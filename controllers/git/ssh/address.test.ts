import assert from 'node:assert/strict'
import { parseRepositoryUrl } from '../url.ts'
import { sshAddressOf } from './address.ts'

describe('the address of a repository over ssh', () => {
  const href = 'ssh://git@example.com/org/app.git'
  const plain = { href, user: 'git', host: 'example.com', port: 22, path: '/org/app.git' }
  const table: [string, Partial<typeof plain>][] = [
    [href, {}],
    ['ssh://example.com/org/app.git', { href: 'ssh://example.com/org/app.git' }],
    ['ssh://git@EXAMPLE.com:22/org/app.git//', {}],
    ['ssh://git@example.com:2222/org/app.git', { href: 'ssh://git@example.com:2222/org/app.git', port: 2222 }],
    [
      'ssh://APKA_1.x-y@example.com/org/app.git',
      { href: 'ssh://APKA_1.x-y@example.com/org/app.git', user: 'APKA_1.x-y' },
    ],
    ['ssh://git@[2001:DB8::1]:22/x', { href: 'ssh://git@[2001:db8::1]/x', host: '2001:db8::1', path: '/x' }],
    ['ssh://git@[::1]:8022/x', { href: 'ssh://git@[::1]:8022/x', host: '::1', port: 8022, path: '/x' }],
    ['ssh://git@example.com/a%20b/%2D', { href: 'ssh://git@example.com/a%20b/%2D', path: '/a b/-' }],
    ['ssh://git@example.com/~me/app', { href: 'ssh://git@example.com/~me/app', path: '~me/app' }],
    ["ssh://git@example.com/it's;x", { href: "ssh://git@example.com/it's;x", path: "/it's;x" }],
  ]
  for (const [text, expected] of table) {
    it(`is read out of ${text}`, () => {
      assert.deepEqual(sshAddressOf(text), { ...plain, ...expected })
      assert.deepEqual(parseRepositoryUrl(text), { href: expected.href ?? href })
      assert.deepEqual(sshAddressOf(expected.href ?? href).path, expected.path ?? plain.path)
    })
  }
})
