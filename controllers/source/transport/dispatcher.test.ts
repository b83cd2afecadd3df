import assert from 'node:assert/strict'
import { createSecureServer, type Http2SecureServer } from 'node:http2'
import { request } from 'undici'
import { makeAuthority } from '../../../e2e/tools/certificates.ts'
import { startForwardProxy } from '../../../e2e/tools/forward-proxy.ts'
import { listen } from '../../../e2e/tools/port.ts'
import { dispatcherFor, transportKey } from './dispatcher.ts'
import type { Transport } from './transport.ts'

const authority = makeAuthority('of servers')
const proxied = (port: number): Transport => ({ proxy: { url: `http://127.0.0.1:${port}` } })

describe('the connections of a transport', () => {
  let server: Http2SecureServer
  let url: string

  before(async () => {
    const { certificate: cert, key } = authority.issue({ commonName: 'server', hosts: ['127.0.0.1'] })
    server = createSecureServer({ cert, key, allowHTTP1: true }, ({ httpVersion }, response) => {
      response.end(httpVersion)
    })
    url = `https://127.0.0.1:${await listen(server)}/`
  })
  after(() => server.close())

  const get = async (transport: Transport) => (await request(url, { dispatcher: dispatcherFor(transport) })).body.text()

  it('are those of all equal ones, and of no other', async () => {
    const trusting = () => ({ tls: { ca: authority.certificate } })
    assert.equal(await get(trusting()), '1.1')
    assert.equal(dispatcherFor(trusting()), dispatcherFor(trusting()))
    await assert.rejects(get({}), /certificate|issuer/)
    assert.notEqual(transportKey(trusting()), transportKey({ ...trusting(), ...proxied(1) }))
    assert.equal(transportKey({}), '')
  })

  it('are of HTTP/1.1, whatever the server would like, through a proxy too', async () => {
    const proxy = await startForwardProxy()
    const tls = { ca: authority.certificate }
    try {
      for (const address of [undefined, proxy.url, proxy.socksUrl])
        assert.equal(await get({ tls, ...(address ? { proxy: { url: address } } : {}) }), '1.1', address ?? 'directly')
    } finally {
      await proxy.stop()
    }
  })

  it('are forgotten where there are too many, those used last remain', () => {
    const [first, second] = [dispatcherFor(proxied(1)), dispatcherFor(proxied(2))]
    for (let port = 3; port < 200; port++) {
      dispatcherFor(proxied(port))
      assert.equal(dispatcherFor(proxied(1)), first)
    }
    assert.notEqual(dispatcherFor(proxied(2)), second)
  })
})
