import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { Socket } from 'node:net'
import { startGitServer, type GitServer } from '../../../e2e/git-server.ts'
import { listen } from '../../../e2e/tools/port.ts'
import { anonymous, basicAccess, makeAccess } from '../access/access.ts'
import { failureOf } from '../test-support.ts'
import { HttpRemote } from './http-remote.ts'

const soon = () => AbortSignal.timeout(30_000)
const everything = { prefixes: ['refs/'], keep: () => true }

describe('a host that wants to be left alone', function () {
  this.timeout(30_000)
  let server: GitServer

  beforeEach(async () => {
    server = await startGitServer()
    await (await server.repository('app.git')).commit({ a: 'a' }, 'first')
  })
  afterEach(() => server.stop())

  for (const [header, ms] of [
    ['7', 7_000],
    ['999999999', 3_600_000],
  ] as const) {
    it(`gets no request of anybody before that time (Retry-After: ${header})`, async () => {
      server.behaviour.tooManyRequests = header
      const first = await failureOf(new HttpRemote(`${server.url}/app.git`, anonymous).listRefs(everything, soon()))
      assert.match(first.message, /too many requests \(HTTP 429\)/)
      assert.equal(first.retryAfterMs, ms)
      server.behaviour.tooManyRequests = undefined
      const other = new HttpRemote(`${server.url}/other.git`, basicAccess('me', 'hunter2'))
      const attempts = [
        () => other.listRefs(everything, soon()),
        () => other.connect({ home: '/nonexistent', path: '', run: '/nonexistent' }),
      ]
      for (const attempt of attempts) {
        const { message, retryAfterMs = 0 } = await failureOf(attempt())
        assert.match(message, /too many requests: '127\.0\.0\.1:\d+' wants no more for \d+s$/)
        assert.ok(retryAfterMs > 0 && retryAfterMs <= ms, String(retryAfterMs))
      }
      assert.equal(server.requests().requests, 1)
    })
  }

  it('is not believed for others where it speaks through a proxy, which could say so in its name', async () => {
    const url = `${server.url}/app.git`
    const liar = createServer((_, answer) => void answer.writeHead(429, { 'retry-after': '3600' }).end())
    liar.on('connect', (_, socket: Socket) => {
      socket.on('error', () => undefined).write('HTTP/1.1 200 OK\r\n\r\n')
      liar.emit('connection', socket)
    })
    const proxied = makeAccess(undefined, { proxy: { url: `http://127.0.0.1:${await listen(liar)}` } })
    try {
      const asked = () => new HttpRemote(url, proxied).listRefs(everything, soon())
      assert.match((await failureOf(asked())).message, /HTTP 429/)
      assert.match((await failureOf(asked())).message, /wants no more for/)
      assert.equal((await new HttpRemote(url, anonymous).listRefs(everything, soon())).length, 1)
    } finally {
      liar.closeAllConnections()
      liar.close()
    }
  })

  for (const header of ['soon', '0', 'Thu, 01 Jan 1970 00:00:00 GMT']) {
    it(`is asked again where it does not say for how long (Retry-After: ${header})`, async () => {
      server.behaviour.tooManyRequests = header
      const remote = new HttpRemote(`${server.url}/app.git`, anonymous)
      assert.ok(!(await failureOf(remote.listRefs(everything, soon()))).retryAfterMs)
      server.behaviour.tooManyRequests = undefined
      assert.equal((await remote.listRefs(everything, soon())).length, 1)
    })
  }
})
