import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { makeSshKey, type SshKeyOptions } from '../../../e2e/ssh-server.ts'
import { ReconcileError } from '../../runtime/errors.ts'
import { sshAccess } from './identity.ts'

const known_hosts = 'example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl'

function accessOf(data: Record<string, string>) {
  const secret = Object.fromEntries(Object.entries(data).map(([key, value]) => [key, Buffer.from(value)]))
  return sshAccess(secret, 'ns/keys')
}

function refusal(data: Record<string, string>): string {
  try {
    accessOf(data)
  } catch (err) {
    assert.ok(err instanceof ReconcileError, String(err))
    assert.equal(err.reason, 'AuthenticationFailed')
    assert.match(err.message, /^failed to configure authentication options: /)
    return err.message
  }
  return assert.fail('accepted')
}

describe('the identity for ssh in a Secret', function () {
  this.timeout(60_000)
  const forms: SshKeyOptions[] = [
    { type: 'ed25519' },
    { type: 'rsa' },
    { type: 'ecdsa' },
    { type: 'rsa', format: 'PEM' },
    { type: 'ecdsa', format: 'PEM' },
    { type: 'rsa', format: 'PKCS8' },
    { type: 'ecdsa', format: 'PKCS8' },
  ]
  for (const form of forms) {
    it(`is an ${form.type} key in the form ${form.format ?? 'of OpenSSH'}, with a passphrase where it is encrypted`, async () => {
      const plain = (await makeSshKey(form)).identity
      assert.deepEqual(accessOf({ identity: plain, known_hosts, password: 'ignored' }).ssh, {
        identity: plain,
        knownHosts: `${known_hosts}\n`,
      })
      const { identity } = await makeSshKey({ ...form, passphrase: 'hunter2' })
      const access = accessOf({ identity, known_hosts, password: 'hunter2\n' })
      assert.equal(access.ssh.passphrase, 'hunter2')
      assert.deepEqual(access.secrets, ['hunter2'])
      assert.match(
        refusal({ identity, known_hosts }),
        /: SSH identity key is encrypted but no 'password' field was provided in the secret 'ns\/keys'$/,
      )
    })
  }

  it('gets the line ends that ssh insists on', async () => {
    const { identity } = await makeSshKey()
    const crlf = `\r\n${identity.trim().replaceAll('\n', '\r\n')}`
    assert.equal(accessOf({ identity: crlf, known_hosts }).ssh.identity, identity)
  })

  it('has one key however often it is read, and another for any other value', async () => {
    const [one, other] = await Promise.all([makeSshKey(), makeSshKey()])
    const keys = [
      { identity: one.identity, known_hosts },
      { identity: one.identity, known_hosts },
      { identity: other.identity, known_hosts },
      { identity: one.identity, known_hosts: `${known_hosts}\nb ${known_hosts.slice(12)}` },
    ].map((data) => accessOf(data).key)
    assert.equal(keys[0], keys[1])
    assert.equal(new Set(keys).size, 3)
  })

  it('is refused where something is missing or is not what it should be', async () => {
    const { identity, publicKey } = await makeSshKey()
    const rsa = generateKeyPairSync('rsa', { modulusLength: 1024 }).privateKey.export({ type: 'pkcs1', format: 'pem' })
    const table: [Record<string, string>, RegExp][] = [
      [{}, /invalid 'ssh' auth option: 'identity' is required$/],
      [{ known_hosts }, /'identity' is required$/],
      [{ identity }, /'known_hosts' is required$/],
      [{ identity, known_hosts: '\n \n' }, /'known_hosts' is required$/],
      [{ identity, known_hosts: '# x\n'.repeat(10_001) }, /secret 'ns\/keys': known_hosts has more than 10000 lines$/],
      [{ identity: publicKey, known_hosts }, /'identity' in secret 'ns\/keys' is a public key/],
      [{ identity: 'garbage', known_hosts }, /is no private key in the format of OpenSSH or PEM$/],
      [{ identity: identity.slice(0, -20), known_hosts }, /is no private key/],
      [{ identity: `x${identity}`, known_hosts }, /is no private key/],
      [{ identity: identity.replace('b3BlbnNzaC1rZXk', 'AAAAAAAAAAAAAAA'), known_hosts }, /no well-formed OpenSSH key/],
      [{ identity: String(rsa).replace('MII', 'AAA'), known_hosts }, /no well-formed PEM key/],
      [{ identity: 'x'.repeat(70_000), known_hosts }, /is longer than 65536 bytes/],
      [{ identity: `${identity}\0`, known_hosts }, /'identity' is not text/],
      [{ identity, known_hosts, password: 'two\nlines' }, /'password' is not one line/],
      [{ identity, known_hosts, password: 'x'.repeat(2000) }, /'password' is longer than/],
    ]
    for (const [data, why] of table) {
      const message = refusal(data)
      assert.match(message, why)
      assert.doesNotMatch(message, /b3BlbnNzaC1rZXk|two\nlines/)
    }
  })
})
