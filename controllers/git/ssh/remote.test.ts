import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import type { Repository } from '../../../e2e/git-repository.ts'
import { makeSshKey, type SshKey, type SshKeyOptions } from '../../../e2e/ssh-server.ts'
import { failureOf } from '../test-support.ts'
import type { SshRemote } from './remote.ts'
import { openSshStage, type SshStage } from './test-support.ts'

const all = { prefixes: ['HEAD', 'refs/'], keep: () => true }

describe('a repository over ssh', function () {
  this.timeout(120_000)
  let stage: SshStage
  let repository: Repository
  let commit: string
  const signal = () => AbortSignal.timeout(60_000)
  const main = (remote: SshRemote) =>
    remote.listRefs({ prefixes: ['refs/heads/main'], keep: (name) => name === 'refs/heads/main' }, signal())
  const refused = async (remote: SshRemote) => await failureOf(main(remote))

  before(async () => {
    stage = await openSshStage({ hostKeys: ['ed25519', 'rsa'] })
    repository = await stage.server.repository('app.git')
    commit = await repository.commit({ 'a.txt': 'one' }, 'first')
    await repository.tag('v1.0.0', { message: 'annotated' })
  })
  after(() => stage.close())
  afterEach(async () => assert.deepEqual(await stage.files(), [], 'files with keys are left'))

  it('tells its refs, what tags stand for, and what it can do', async () => {
    const remote = stage.remote()
    assert.equal(remote.features, undefined)
    const refs = await remote.listRefs({ ...all, symrefs: true }, signal())
    assert.deepEqual(
      refs.map(({ name, peeled, symref }) => ({ name, peeled, symref })),
      [
        { name: 'HEAD', peeled: undefined, symref: 'refs/heads/main' },
        { name: 'refs/heads/main', peeled: undefined, symref: undefined },
        { name: 'refs/tags/v1.0.0', peeled: commit, symref: undefined },
      ],
    )
    assert.deepEqual(remote.features, { version: 2, agent: true, filter: true })
    assert.deepEqual(await main(remote), [{ name: 'refs/heads/main', oid: commit }])
  })

  it('is asked in one connection, and not at all where it has just answered', async () => {
    const remote = stage.remote()
    const before = stage.server.connections()
    await main(remote)
    await remote.greet(60_000, signal())
    assert.equal(stage.server.connections() - before, 1)
    remote.forget()
    await remote.greet(60_000, signal())
    assert.equal(stage.server.connections() - before, 2)
  })

  const forms: SshKeyOptions[] = [
    { type: 'rsa' },
    { type: 'ecdsa' },
    { type: 'rsa', format: 'PEM' },
    { type: 'ecdsa', format: 'PKCS8' },
    { type: 'ed25519', passphrase: `it's "hunter2" $x %h` },
    { type: 'rsa', format: 'PEM', passphrase: 'hunter2' },
    { type: 'ecdsa', format: 'PKCS8', passphrase: 'hunter2' },
  ]
  for (const form of forms) {
    const { type, format = 'of OpenSSH', passphrase } = form
    it(`accepts an ${passphrase ? 'encrypted ' : ''}${type} key in the form ${format}`, async () => {
      const key = await makeSshKey(form)
      await stage.server.authorize(stage.key, key)
      const remote = stage.remote({ identity: key.identity, ...(passphrase && { password: passphrase }) })
      assert.equal((await main(remote))[0]?.oid, commit)
    })
  }

  it('is known by a hashed name, by an rsa key alone, and by a name without port', async () => {
    const { server } = stage
    const name = `[127.0.0.1]:${server.port}`
    const salt = Buffer.alloc(20, 7)
    const hash = createHmac('sha1', salt).update(name).digest('base64')
    const rsa = server.knownHosts('rsa')
    for (const known_hosts of [
      rsa.replace(name, `|1|${salt.toString('base64')}|${hash}`),
      rsa,
      rsa.replace(name, '127.0.0.*'),
      `other.example ${rsa.slice(name.length + 1)}\r\n# x\r\n${rsa}`,
    ]) {
      assert.equal((await main(stage.remote({ known_hosts })))[0]?.oid, commit, known_hosts)
    }
  })

  it('is not asked where known_hosts does not know it, or what is known is revoked', async () => {
    const { server } = stage
    const before = server.connections()
    const key = server.knownHosts().split(' ').slice(1).join(' ')
    for (const [known_hosts, why] of [
      [`other.example ${key}`, `knownhosts: no entry for '[127.0.0.1]:${server.port}'`],
      [`[127.0.0.1]:${server.port + 1} ${key}`, `knownhosts: no entry for '[127.0.0.1]:${server.port}'`],
      [`${server.knownHosts()}\n@revoked * ${key}`, `knownhosts: the keys of '[127.0.0.1]:${server.port}' are revoked`],
      [`127.0.0.1 nonsense`, 'line 1 of known_hosts: the key is not base64'],
    ] as const) {
      const err = await refused(stage.remote({ known_hosts }))
      assert.equal(err.reason, 'AuthenticationFailed')
      assert.equal(err.message, `failed to configure authentication options: ${why}`)
    }
    assert.equal(server.connections(), before)
  })

  it('is not trusted with another key than the known one', async () => {
    const { server } = stage
    const other = await makeSshKey()
    const ecdsa = await makeSshKey({ type: 'ecdsa' })
    const line = (key: SshKey) => `[127.0.0.1]:${server.port} ${key.publicKey}`
    for (const [known_hosts, why] of [
      [line(other), /ssh: handshake failed: knownhosts: key mismatch: the host has SHA256:\S+$/],
      [line(ecdsa), /ssh: handshake failed: knownhosts: key is unknown: the host offers \S*ssh-ed25519\S*$/],
      [`${line(other)}\n@revoked * ${server.knownHosts().split(' ').slice(1).join(' ')}`, /knownhosts: .*revoked/],
    ] as const) {
      const err = await refused(stage.remote({ known_hosts }))
      assert.equal(err.reason, 'AuthenticationFailed')
      assert.match(err.message, why)
      assert.match(err.message, /^failed to checkout and determine revision: unable to clone 'ssh:/)
    }
  })

  it('says which key is at fault', async () => {
    const [stranger, locked] = await Promise.all([makeSshKey(), makeSshKey({ passphrase: 'hunter2' })])
    const half = Math.floor(stage.key.identity.length / 2)
    const broken = `${stage.key.identity.slice(0, half)}AAAA${stage.key.identity.slice(half + 4)}`
    for (const [data, reason, why] of [
      [{ identity: stranger.identity }, 'GitOperationFailed', /the server does not accept the key \(Permission denied/],
      [
        { identity: locked.identity, password: 'guess' },
        'AuthenticationFailed',
        /ssh: identity: 'password' is not the/,
      ],
      [{ identity: broken }, 'AuthenticationFailed', /ssh: identity: \S/],
    ] as const) {
      const err = await refused(stage.remote(data))
      assert.equal(err.reason, reason, err.message)
      assert.match(err.message, why)
      assert.doesNotMatch(err.message, /guess|hunter2|files-/)
    }
  })

  it('says what the server says, and what ssh says of a server that is not there', async () => {
    const at = (path: string) => stage.remote({}, { url: `${stage.server.url}${path}` })
    assert.match(
      (await refused(at('/no.git'))).message,
      /: fatal: '\S+no\.git' does not appear to be a git repository$/,
    )
    assert.match((await refused(at('/a/../app.git'))).message, /: not allowed$/)
    const dead = stage.remote(
      { known_hosts: stage.server.knownHosts().replace(/\S+/, '*') },
      { url: 'ssh://git@127.0.0.1:1/x' },
    )
    const err = await refused(dead)
    assert.equal(err.reason, 'GitOperationFailed')
    assert.match(err.message, /connect to host 127\.0\.0\.1 port 1: Connection refused$/)
  })

  it('is only asked with algorithms that are allowed', async () => {
    const own = await openSshStage({ config: ['KexAlgorithms curve25519-sha256'] })
    try {
      await (await own.server.repository('app.git')).commit({ a: '' }, 'x')
      const allowing = (kex: string) => own.remote({}, { algorithms: { kex: [kex] } })
      assert.equal((await main(allowing('curve25519-sha256'))).length, 1)
      const err = await refused(allowing('ecdh-sha2-nistp256'))
      assert.match(err.message, /ssh: handshake failed: no common key exchange method, the server offers \S*curve25519/)
      const none = await refused(own.remote({}, { algorithms: { hostKey: ['rsa-sha2-512'] } }))
      assert.match(none.message, /no usable type of key of those that --ssh-hostkey-algos allows/)
    } finally {
      await own.close()
    }
  })

  it('is trusted by the certificate of an authority', async () => {
    const [authority, other] = await Promise.all([makeSshKey(), makeSshKey()])
    const own = await openSshStage({ authority })
    try {
      await (await own.server.repository('app.git')).commit({ a: '' }, 'x')
      const trusting = (key: SshKey) => own.remote({ known_hosts: `@cert-authority 127.0.0.* ${key.publicKey}` })
      assert.equal((await main(trusting(authority))).length, 1)
      const err = await refused(trusting(other))
      assert.equal(err.reason, 'AuthenticationFailed')
      assert.match(err.message, /knownhosts: key is unknown/)
    } finally {
      await own.close()
    }
  })
})
