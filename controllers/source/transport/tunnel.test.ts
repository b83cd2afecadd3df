import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { listen } from '../../../e2e/tools/port.ts'
import { eventually } from '../../runtime/eventually.ts'
import { openTunnel } from './tunnel.ts'

describe('a tunnel', () => {
  const clients: Set<Socket> = new Set()
  let server: Server
  let port: number
  /** What the proxy says, whatever it is asked. */
  let said: Buffer

  before(async () => {
    server = createServer((client) => {
      clients.add(client)
      client.on('error', () => undefined) // a client that goes away is no event here
      client.on('close', () => clients.delete(client)).resume()
      client.once('data', () => void drip(client))
    })
    port = await listen(server)
  })
  after(async () => {
    for (const client of clients) client.destroy()
    server.close()
    await once(server, 'close')
  })

  async function drip(client: Socket): Promise<void> {
    for (const byte of said) {
      client.write(Buffer.of(byte))
      await delay(2) // so that it arrives alone
    }
  }

  const open = (scheme: string, signal = AbortSignal.timeout(10_000)) =>
    openTunnel({ url: `${scheme}://127.0.0.1:${port}` }, 'git.example', 443, signal)

  it('is opened by a SOCKS5 proxy that says a byte at a time, and begins behind what the proxy says', async () => {
    const name = Buffer.from('a name of the proxy')
    said = Buffer.concat([
      Buffer.of(5, 0),
      Buffer.of(5, 0, 0, 3, name.length),
      name,
      Buffer.of(1, 2),
      Buffer.from('hi'),
    ])
    const tunnel = await open('socks5')
    let received = ''
    for await (const chunk of tunnel as AsyncIterable<Buffer>) if ((received += chunk.toString()) === 'hi') break
    await eventually(() => clients.size === 0)
  })

  for (const [what, scheme, answer, why] of [
    ['that wants what we do not have', 'socks5', [5, 255], /another kind of authentication/],
    ['that is none', 'socks5', [...Buffer.from('HTTP')], /does not speak SOCKS5/],
    ['that does not reach the host', 'socks5', [5, 0, 5, 4, 0, 1], /^host unreachable$/],
    ['that refuses', 'http', [...Buffer.from('HTTP/1.1 403 no\r\n\r\n')], /^it answers 403$/],
  ] as const) {
    it(`is not opened by a proxy ${what}, and no connection is left`, async () => {
      said = Buffer.from(answer)
      await assert.rejects(open(scheme), { message: why })
      await eventually(() => clients.size === 0)
    })
  }

  for (const scheme of ['socks5', 'http']) {
    it(`is given up where a proxy (${scheme}) stops in the midst of a word, and no connection is left`, async () => {
      said = Buffer.of(scheme === 'http' ? 72 : 5)
      await assert.rejects(open(scheme, AbortSignal.timeout(100)), { name: 'AbortError' })
      await eventually(() => clients.size === 0)
    })
  }
})
