import assert from 'node:assert/strict'
import { readdir } from 'node:fs/promises'
import { createServer } from 'node:https'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import { startGitServer, type GitServer, type GitServerOptions } from '../../../e2e/git-server.ts'
import { makeAuthority } from '../../../e2e/tools/certificates.ts'
import { startForwardProxy, type ForwardProxy, type ForwardProxyOptions } from '../../../e2e/tools/forward-proxy.ts'
import { listen } from '../../../e2e/tools/port.ts'
import { defaultListingLimits } from '../content/listing.ts'
import { makeGitSource } from '../source.ts'
import { contextOf, failureOf, objectOf, openStage, readAll, type Stage } from '../test-support.ts'
import type { GitRepositorySpec } from '../types.ts'

type Secrets = Record<string, Record<string, string>>
type Ways = Record<string, GitRepositorySpec['ref'] & {}>

const authority = makeAuthority('of servers')
const clients = makeAuthority('of clients')
const host = 'git.example'
const tls = authority.issue({ commonName: host, hosts: ['127.0.0.1', 'localhost', host] })
const ca = { 'ca.crt': authority.certificate }
const files = { 'a.txt': 'hello\n' }

describe('a repository', function () {
  this.timeout(60_000)
  let stage: Stage
  let server: GitServer
  let proxy: ForwardProxy | undefined
  /** Asked for by us, and then fetched by native git; or fetched alone. */
  let ways: Ways

  async function start(options: GitServerOptions = {}, through?: ForwardProxyOptions): Promise<void> {
    stage = await openStage()
    server = await startGitServer(options)
    const commit = await (await server.repository('app.git')).commit(files, 'first')
    ways = { asked: { branch: 'main' }, fetched: { commit } }
    if (through) proxy = await startForwardProxy({ ...through, hosts: { [host]: '127.0.0.1' } })
  }
  afterEach(async () => {
    await proxy?.stop()
    proxy = undefined
    await server.stop()
    await stage.close()
  })

  /** A pass on a cache of its own. */
  async function pass(ref: Ways[string], secrets: Secrets, url = `${server.url}/app.git`): Promise<unknown> {
    const mirrors = stage.open({ cacheFolder: join(stage.folder, `cache-${Math.random()}`) })
    const source = makeGitSource({ mirrors, listingLimits: defaultListingLimits })
    const names = { ...(secrets['creds'] && { secretRef: { name: 'creds' } }) }
    const proxied = { ...(secrets['proxy'] && { proxySecretRef: { name: 'proxy' } }) }
    const obj = objectOf({ url, ref, ...names, ...proxied })
    const ctx = contextOf(AbortSignal.timeout(30_000), secrets)
    const fetched = await source.fetch(obj, await source.resolve(obj, ctx), ctx)
    try {
      return await readAll(fetched.entries)
    } finally {
      await fetched.close?.()
    }
  }

  async function succeeds(secrets: Secrets, url?: string): Promise<void> {
    assert.deepEqual(await pass(ways['asked']!, secrets, url), files)
    await leavesNothing(secrets)
  }

  /** Each of the two, where the other one has not failed before. */
  async function fails(secrets: Secrets, message: RegExp, url?: string): Promise<void> {
    for (const [way, ref] of Object.entries(ways)) {
      const err = await failureOf(pass(ref, secrets, url))
      assert.match(err.message, message, way)
      assert.equal(err.reason, 'GitOperationFailed')
      assert.doesNotMatch(err.message, /hunter2/)
    }
    await leavesNothing(secrets)
  }

  /** No file, no argument, and nothing in the environment of a process that talks to nobody. */
  async function leavesNothing(secrets: Secrets): Promise<void> {
    const folders = (await readdir(stage.folder)).filter((name) => name.startsWith('cache-'))
    for (const folder of folders) assert.deepEqual(await readdir(join(stage.folder, folder, 'run')).catch(() => []), [])
    const said = (await stage.processes()).join('\n')
    for (const value of Object.values(secrets).flatMap((data) => Object.values(data)))
      assert.ok(!said.includes(value.slice(0, 200)))
    const environment = await stage.lastEnvironment()
    if (!/GIT_ALLOW_PROTOCOL=none/.test(environment)) return
    assert.doesNotMatch(environment, /hunter2|Authorization|proxy/i)
  }

  for (const [what, auth, data] of [
    ['a password', { user: 'me', password: 'hunter2-word' }, { username: 'me', password: 'hunter2-word' }],
    ['a token', { bearer: 'hunter2-token' }, { bearerToken: 'hunter2-token' }],
  ] as const) {
    it(`is fetched over TLS with an authority of its own and ${what}`, async () => {
      await start({ tls, auth })
      await succeeds({ creds: { ...ca, ...data } })
      await fails({ creds: ca }, /authentication required/)
      await fails({ creds: data }, /certificate|self.signed|issuer/i)
    })
  }

  it('is fetched with a certificate of ours, which is not optional', async () => {
    await start({ tls: { ...tls, clientCa: clients.certificate } })
    const { certificate, key } = clients.issue({ commonName: 'me' })
    await succeeds({ creds: { ...ca, 'tls.crt': certificate, 'tls.key': key } })
    server.reset()
    await fails({ creds: ca }, /alert|certificate|handshake|socket|recv|hung up|closed/i)
    const stranger = makeAuthority('of strangers').issue({ commonName: 'me' })
    const wrong = { ...ca, 'tls.crt': stranger.certificate, 'tls.key': stranger.key }
    await fails({ creds: wrong }, /alert|certificate|handshake|socket|recv|hung up|closed/i)
    assert.equal(server.requests().requests, 0)
  })

  it('that has moved to another host gets neither our certificate nor our password', async () => {
    await start({ tls: { ...tls, clientCa: clients.certificate } })
    const seen: unknown[] = []
    const { certificate: cert, key } = tls
    const elsewhere = createServer({ cert, key, requestCert: true, rejectUnauthorized: false }, (request, response) => {
      const peer = (request.socket as TLSSocket).getPeerCertificate()
      seen.push([Object.keys(peer).length, request.headers.authorization])
      response.writeHead(404).end()
    })
    try {
      server.behaviour.redirect = { status: 302, location: `https://127.0.0.1:${await listen(elsewhere)}*` }
      const mine = clients.issue({ commonName: 'me' })
      const login = { username: 'me', password: 'hunter2-word' }
      const creds = { ...ca, ...login, 'tls.crt': mine.certificate, 'tls.key': mine.key }
      assert.match((await failureOf(pass(ways['asked']!, { creds }))).message, /repository not found/)
      assert.deepEqual(seen, [[0, undefined]])
    } finally {
      elsewhere.close()
    }
  })

  const me = { username: 'me', password: 'hunter2 p@ss/word' }
  for (const [what, options, through, address] of [
    ['http, by its name', {}, { auth: me }, (p: ForwardProxy) => p.url],
    ['http', { tls }, { auth: me }, (p: ForwardProxy) => p.url],
    ['https', { tls }, { auth: me, tls }, (p: ForwardProxy) => `https://localhost:${p.port}`],
    ['SOCKS5', { tls }, { auth: me }, (p: ForwardProxy) => p.socksUrl],
    ['SOCKS5 without a password', {}, {}, (p: ForwardProxy) => p.socksUrl],
  ] as [string, GitServerOptions, ForwardProxyOptions, (proxy: ForwardProxy) => string][]) {
    // Nobody but the proxy knows the name: there is no way around it.
    it(`is fetched through a proxy that speaks ${what}`, async () => {
      await start(options, through)
      const target = new URL(server.url)
      target.hostname = host
      const url = `${target.origin}/app.git`
      const secrets = { creds: ca, proxy: { address: address(proxy!), ...through.auth } }
      await succeeds(secrets, url)
      const { targets, refused } = proxy!.counters()
      assert.deepEqual([...new Set(targets)], [`${host}:${target.port}`])
      if (!through.auth) return
      assert.equal(refused, 0)
      const wrong = { creds: ca, proxy: { ...secrets.proxy, password: 'hunter2-wrong' } }
      server.reset()
      await fails(wrong, /407|proxy|SOCKS/i, url)
      assert.ok(proxy!.counters().refused >= 2)
      assert.equal(server.requests().requests, 0)
    })
  }

  it('of one proxy is not fetched where the proxy is down', async () => {
    await start({}, {})
    const secrets = { proxy: { address: proxy!.url } }
    await proxy!.stop()
    await fails(secrets, /connect/i)
    assert.equal(server.requests().requests, 0)
    proxy = undefined
  })
})
