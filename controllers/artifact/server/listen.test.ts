import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { pino } from 'pino'
import { eventually } from '../../runtime/eventually.ts'
import { makeFileServer } from './server.ts'
import { makeServer, storeLarge } from './test-server.ts'

async function dial(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {}) // a connection that is refused or reset is what some of these tests are about
  await once(socket, 'connect')
  return socket
}

describe('listening', function () {
  this.timeout(60_000)

  it('closes connections beyond its limit at once, and serves again when there is room', async () => {
    await using f = await makeServer({ maxConnections: 5 })
    const { artifact } = await f.store('one')
    const idle = await Promise.all(Array.from({ length: 5 }, () => dial(f.server.port)))
    const surplus = await dial(f.server.port)
    await once(surplus, 'close')
    for (const socket of idle) socket.destroy()
    await eventually(async () => (await f.get(`/${artifact.path}`)).status === 200)
  })

  it('answers nonsense with 400', async () => {
    await using f = await makeServer()
    const socket = await dial(f.server.port)
    socket.write('nonsense\r\n\r\n')
    const [data] = await once(socket, 'data')
    assert.match(String(data), /^HTTP\/1\.1 400 /)
  })

  it('refuses an address that is taken or malformed', async () => {
    await using f = await makeServer()
    const other = makeFileServer({
      storage: f.storage,
      state: { ready: () => true, expects: () => false, current: () => undefined },
      onDamage: () => {},
      log: pino({ level: 'silent' }),
    })
    await assert.rejects(other.listen(`127.0.0.1:${f.server.port}`), { code: 'EADDRINUSE' })
    await assert.rejects(other.listen('nowhere'))
  })

  it('lets running downloads end before it closes, and takes no new ones', async () => {
    await using f = await makeServer({ graceMs: 15_000, memoryBytes: 0 })
    const artifact = await storeLarge(f)
    const idle = await dial(f.server.port)
    const sent = request(f.server.url, { path: `/${artifact.path}`, headers: { connection: 'keep-alive' } }).end()
    const [response] = await once(sent, 'response')
    response.pause()
    let closed = false
    const closing = f.server.close().then(() => (closed = true))
    await once(idle, 'close')
    await assert.rejects(f.get(`/${artifact.path}`))
    assert.equal(closed, false)
    let size = 0
    for await (const chunk of response) size += chunk.length
    assert.equal(size, artifact.size)
    await closing
  })

  it('cuts off what does not end within the grace period', async () => {
    await using f = await makeServer({ graceMs: 100 })
    const artifact = await storeLarge(f)
    const sent = request(f.server.url, { path: `/${artifact.path}` }).end()
    const [response] = await once(sent, 'response')
    response.pause()
    await f.server.close()
    await assert.rejects(async () => {
      for await (const chunk of response) assert.ok(chunk)
    })
  })
})
