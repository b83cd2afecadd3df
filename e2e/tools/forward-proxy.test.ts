import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createServer, type Server } from 'node:http'
import { promisify } from 'node:util'
import { makeAuthority } from './certificates.ts'
import { type ForwardProxy, startForwardProxy } from './forward-proxy.ts'
import { listen } from './port.ts'

const me = { username: 'me', password: 'pass:word' }

/** The status code of an answer that curl got, 000 where it got none. */
async function curl(...args: string[]): Promise<string> {
  const options = [
    '--silent',
    '--noproxy',
    '',
    '--output',
    '/dev/null',
    '--write-out',
    '%{http_code}',
    '--max-time',
    '20',
  ]
  const done = promisify(execFile)('curl', [...options, ...args])
  return (await done.catch((err: { stdout: string }) => err)).stdout
}

describe('the forward proxy', () => {
  let server: Server
  let proxy: ForwardProxy
  let port: number
  const seen: string[] = []

  before(async () => {
    server = createServer((request, response) => {
      seen.push(request.headers['proxy-authorization'] ?? 'none')
      response.end('x'.repeat(10_000))
    })
    port = await listen(server)
    proxy = await startForwardProxy({ auth: me, hosts: { 'git.example': '127.0.0.1' } })
  })
  after(async () => {
    await proxy.stop()
    server.close()
  })
  beforeEach(() => {
    proxy.reset()
    seen.length = 0
  })

  const ways = {
    'absolute-form': () => ['--proxy', proxy.url],
    CONNECT: () => ['--proxytunnel', '--proxy', proxy.url],
    SOCKS5: () => ['--proxy', proxy.socksUrl.replace('socks5', 'socks5h')],
  }
  for (const [way, args] of Object.entries(ways)) {
    it(`carries and counts ${way}, for names that it alone knows`, async () => {
      assert.equal(await curl(...args(), '--proxy-user', 'me:pass:word', `http://git.example:${port}/`), '200')
      const { connections, refused, targets, bytesIn, bytesOut } = proxy.counters()
      assert.deepEqual(
        { connections, refused, targets },
        { connections: 1, refused: 0, targets: [`git.example:${port}`] },
      )
      assert.ok(bytesOut > 10_000 && bytesOut < 11_000 && bytesIn > 50 && bytesIn < 1_000, `${bytesIn}, ${bytesOut}`)
      assert.deepEqual(seen, ['none'])
    })

    it(`turns away who has no credentials or wrong ones (${way})`, async () => {
      for (const wrong of [[], ['--proxy-user', 'me:other']])
        assert.notEqual(await curl(...args(), ...wrong, `http://git.example:${port}/`), '200')
      assert.equal(proxy.counters().refused, 2)
      assert.deepEqual([proxy.counters().targets, seen], [[], []])
    })
  }

  it('speaks TLS with its clients where it has a certificate', async () => {
    const tls = makeAuthority('proxies').issue({ commonName: 'proxy', hosts: ['127.0.0.1'] })
    const secure = await startForwardProxy({ tls })
    try {
      assert.match(secure.url, /^https:/)
      assert.equal(await curl('--proxy-insecure', '--proxy', secure.url, `http://127.0.0.1:${port}/`), '200')
      assert.deepEqual(secure.counters().targets, [`127.0.0.1:${port}`])
    } finally {
      await secure.stop()
    }
  })
})
