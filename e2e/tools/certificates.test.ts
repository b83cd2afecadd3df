import assert from 'node:assert/strict'
import { createPrivateKey, createPublicKey, sign, verify, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer, TLSSocket } from 'node:tls'
import { makeAuthority, makeKeyPair, type Authority } from './certificates.ts'
import { listen } from './port.ts'

describe('the certificate authority', () => {
  const authority = makeAuthority('test authority')

  it('signs itself', () => {
    const root = new X509Certificate(authority.certificate)
    assert.equal(root.ca, true)
    assert.ok(root.verify(root.publicKey))
    assert.ok(root.checkIssued(root))
  })

  it('issues a certificate for the hosts of a server and no others', () => {
    const { certificate, key } = authority.issue({ commonName: 'server', hosts: ['127.0.0.1', 'localhost'] })
    const leaf = new X509Certificate(certificate)
    const root = new X509Certificate(authority.certificate)
    assert.equal(leaf.ca, false)
    assert.ok(leaf.checkIssued(root) && leaf.verify(root.publicKey))
    assert.ok(leaf.checkPrivateKey(createPrivateKey(key)))
    assert.equal(leaf.subjectAltName, 'IP Address:127.0.0.1, DNS:localhost')
    assert.equal(leaf.checkHost('example.com'), undefined)
    assert.ok(leaf.validFromDate < new Date() && new Date(Date.now() + 300 * 86_400_000) < leaf.validToDate)
  })

  it('names a user and the groups', () => {
    const { certificate } = authority.issue({ commonName: 'jané', organizations: ['a', 'b'] })
    assert.equal(new X509Certificate(certificate).subject, 'O=a\nO=b\nCN=jané')
  })

  it('never issues a serial number twice', () => {
    const serials = Array.from({ length: 50 }, () => {
      return new X509Certificate(authority.issue({ commonName: 'x' }).certificate).serialNumber
    })
    assert.equal(new Set(serials).size, 50)
    assert.ok(serials.every((serial) => serial.length === 32))
  })

  it('lets client and server know each other over TLS', async () => {
    assert.equal(await handshake(authority, authority), 'jane')
  })

  it('is not taken for another authority of the same name', async () => {
    await assert.rejects(handshake(authority, makeAuthority('test authority')), { code: /CERT|VERIFY|signature/i })
  })

  it('makes key pairs that belong together', () => {
    const { publicKey, privateKey } = makeKeyPair()
    const signature = sign('sha256', Buffer.from('token'), createPrivateKey(privateKey))
    assert.ok(verify('sha256', Buffer.from('token'), createPublicKey(publicKey), signature))
  })
})

/** Connects to a server of one authority as a client that trusts another; resolves with whom the server saw. */
async function handshake(issuer: Authority, trusted: Authority): Promise<string | string[] | undefined> {
  const { certificate: cert, key } = issuer.issue({ commonName: 'server', hosts: ['127.0.0.1'] })
  const server = createServer({ cert, key, ca: issuer.certificate, requestCert: true })
  server.on('tlsClientError', () => {}) // the client tells
  const port = await listen(server)
  const saw = once(server, 'secureConnection')
  const jane = issuer.issue({ commonName: 'jane' })
  const ca = trusted.certificate
  const client = connect({ port, host: '127.0.0.1', ca, cert: jane.certificate, key: jane.key })
  try {
    await once(client, 'secureConnect')
    const [peer] = await saw
    assert.ok(peer instanceof TLSSocket && peer.authorized)
    return peer.getPeerCertificate().subject.CN
  } finally {
    client.destroy()
    server.close()
  }
}
