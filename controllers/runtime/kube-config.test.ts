import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loadCredentials } from './kube-config.ts'
import { readPlainKubeConfig } from './plain-kube-config.ts'

describe('a kubeconfig', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'openflux-kubeconfig-'))
  })
  afterEach(() => rm(folder, { recursive: true, force: true }))

  /** A file with one cluster and one user beside others; gives its path. */
  async function write(user: object, cluster: object = {}, more: object = {}): Promise<string> {
    const file = join(folder, 'config')
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'here',
      contexts: [
        { name: 'there', context: { cluster: 'x', user: 'x' } },
        { name: 'here', context: { cluster: 'c', user: 'u' } },
      ],
      clusters: [{ name: 'c', cluster: { server: 'https://api.example:6443/', ...cluster } }],
      users: [{ name: 'u', user }],
      ...more,
    }
    await writeFile(file, JSON.stringify(config)) // JSON is YAML
    return file
  }
  const base64 = (text: string) => Buffer.from(text).toString('base64')

  it('of certificates and tokens is read as it is written, and files are looked for beside it', async () => {
    const user = { 'client-certificate-data': base64('cert'), 'client-key': 'user.key', token: 'abc' }
    const cluster = {
      'certificate-authority': '/etc/ca.crt',
      'tls-server-name': 'api',
      'insecure-skip-tls-verify': true,
    }
    assert.deepEqual(readPlainKubeConfig(await write(user, cluster), {}), {
      server: 'https://api.example:6443',
      ca: { file: '/etc/ca.crt' },
      cert: { content: 'cert' },
      key: { file: join(folder, 'user.key') },
      token: { content: 'abc' },
      servername: 'api',
      insecure: true,
    })
  })

  it('is found by the environment where no path is given', async () => {
    const KUBECONFIG = await write({ tokenFile: 'token' })
    assert.deepEqual(readPlainKubeConfig(undefined, { KUBECONFIG })?.token, { file: join(folder, 'token') })
    assert.equal(readPlainKubeConfig(undefined, { KUBECONFIG: join(folder, 'gone') }), undefined)
    assert.equal(readPlainKubeConfig(undefined, { KUBECONFIG: `${KUBECONFIG}:${KUBECONFIG}` }), undefined)
  })

  for (const [what, user, cluster] of [
    ['a plugin', { exec: { command: 'x' } }, {}],
    ['an older kind of plugin', { 'auth-provider': { name: 'oidc' } }, {}],
    ['somebody else to act as', { token: 'a', as: 'root' }, {}],
    ['a name and a password', { username: 'me', password: 'pw' }, {}],
    ['a proxy', { token: 'a' }, { 'proxy-url': 'http://proxy' }],
    ['no TLS', { token: 'a' }, { server: 'http://api.example' }],
  ] as const) {
    it(`with ${what} is left to client-node`, async () => {
      assert.equal(readPlainKubeConfig(await write(user, cluster), {}), undefined)
    })
  }

  it('without the current context is none, and that is said at the start', async () => {
    const file = await write({ token: 'a' }, {}, { 'current-context': 'gone' })
    assert.throws(() => loadCredentials(file), /no cluster in the kubeconfig/)
    assert.throws(() => loadCredentials(join(folder, 'gone')), /ENOENT/)
  })

  it('gives the token that its file holds now, over the same connections', async () => {
    await writeFile(join(folder, 'token'), 'one\n')
    const credentials = loadCredentials(await write({ tokenFile: 'token' }))
    const first = await credentials()
    assert.deepEqual(first.headers, { Authorization: 'Bearer one' })
    await writeFile(join(folder, 'token'), 'two\n')
    assert.deepEqual((await credentials()).headers, first.headers)
    const second = await credentials(true)
    assert.deepEqual(second.headers, { Authorization: 'Bearer two' })
    assert.equal(second.dispatcher, first.dispatcher)
  })

  it('gives what a plugin says', async () => {
    const command = join(folder, 'plugin')
    const credential = { apiVersion: 'client.authentication.k8s.io/v1', kind: 'ExecCredential', status: { token: 't' } }
    await writeFile(command, `#!/bin/sh\necho '${JSON.stringify(credential)}'\n`)
    await chmod(command, 0o755)
    const exec = { apiVersion: credential.apiVersion, command, interactiveMode: 'Never' }
    const credentials = loadCredentials(await write({ exec }))
    const { server, headers } = await credentials()
    assert.deepEqual([server, headers['Authorization']], ['https://api.example:6443', 'Bearer t'])
  })
})
