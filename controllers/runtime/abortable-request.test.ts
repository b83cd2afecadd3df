import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createSecureServer, type Http2SecureServer, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Agent } from 'undici'
import { makeAuthority } from '../../e2e/tools/certificates.ts'
import { abortableRequest } from './abortable-request.ts'
import { eventually } from './eventually.ts'

describe('a request that may be aborted, over HTTP/2', () => {
  const authority = makeAuthority('test')
  let server: Http2SecureServer
  let dispatcher: Agent
  let url: string
  let sessions: ServerHttp2Session[]
  let streams: ServerHttp2Stream[]

  beforeEach(async () => {
    const { certificate, key } = authority.issue({ commonName: 'server', hosts: ['127.0.0.1'] })
    server = createSecureServer({ cert: certificate, key })
    sessions = []
    streams = []
    server.on('session', (session) => sessions.push(session))
    server.on('stream', (stream: ServerHttp2Stream) => {
      streams.push(stream)
      stream.on('error', () => {}) // cut off by the client
      stream.respond({ ':status': 200 })
      stream.write('begun')
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
    dispatcher = new Agent({ connect: { ca: authority.certificate } })
  })
  afterEach(async () => {
    for (const session of sessions) session.destroy()
    await dispatcher.destroy()
    server.close()
  })

  const ask = (signal?: AbortSignal) => abortableRequest(url, { dispatcher }, signal)

  it('stops waiting at once, and leaves nothing that the end of the connection could turn into a crash', async () => {
    const kept = await ask()
    kept.body.on('error', () => {}) // ends with its connection
    const abort = new AbortController()
    const asked = ask(abort.signal)
    abort.abort(new Error('enough'))
    await assert.rejects(asked, /enough/)
    // What was asked for all the same is dropped when it comes.
    await eventually(() => streams.length === 2 && streams[1]!.closed)
    for (const session of sessions) session.destroy()
    await eventually(() => kept.body.closed)
    // An uncaught error, a turn later, would fail this test.
    await nextTurn()
  })

  it('cuts off an answer that has begun', async () => {
    const abort = new AbortController()
    const { body } = await ask(abort.signal)
    await assert.rejects(async () => {
      for await (const _ of body) abort.abort(new Error('enough'))
    }, /enough/)
    await eventually(() => streams[0]!.closed)
  })

  it('cuts off an answer that nobody has begun to read', async () => {
    const abort = new AbortController()
    const { body } = await ask(abort.signal)
    abort.abort(new Error('enough'))
    await eventually(() => body.closed && streams[0]!.closed)
    await assert.rejects(body.text(), /enough/)
  })

  it('asks for nothing when it is too late already', async () => {
    await assert.rejects(ask(AbortSignal.abort(new Error('too late'))), /too late/)
    assert.deepEqual(sessions, [])
  })
})
