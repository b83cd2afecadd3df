import assert from 'node:assert/strict'
import { createServer, type RequestListener, type Server } from 'node:http'
import { startGitServer, type GitServer, type Repository } from '../../../e2e/git-server.ts'
import { ReconcileError } from '../../runtime/errors.ts'
import { accessFromSecret, anonymous, basicAccess } from '../access/access.ts'
import { encodePacket, flushPacket } from './pkt-line.ts'
import { HttpRemote } from './http-remote.ts'
import type { RefQuery } from './remote.ts'

const soon = () => AbortSignal.timeout(30_000)
const exactly = (name: string): RefQuery => ({ prefixes: [name], keep: (n) => n === name, enough: 1 })
const everything: RefQuery = { prefixes: ['refs/'], keep: () => true }
const me = accessFromSecret({ username: Buffer.from('me'), password: Buffer.from('hunter2') }, 'ns/n')!

async function failureOf(work: Promise<unknown>): Promise<ReconcileError> {
  const err = await work.then(
    () => assert.fail('did not fail'),
    (e: unknown) => e,
  )
  assert.ok(err instanceof ReconcileError, String(err))
  assert.equal(err.reason, 'GitOperationFailed')
  assert.match(err.message, /^failed to checkout and determine revision: unable to clone 'http/)
  assert.doesNotMatch(err.message, /hunter2|bWU6/)
  return err
}

describe('asking a real server for refs', function () {
  this.timeout(60_000)
  let server: GitServer
  let repository: Repository
  let url: string
  let commit: string

  before(async () => {
    server = await startGitServer()
    repository = await server.repository('app.git')
    url = `${server.url}/app.git`
    commit = await repository.commit({ 'a.txt': 'a' }, 'first')
    await repository.tag('v1.0.0', { message: 'annotated' })
    const refs = Array.from({ length: 2000 }, (_, i) => `create refs/heads/many/${i} ${commit}`)
    await repository.git(['update-ref', '--stdin'], `${refs.join('\n')}\n`)
  })
  after(() => server.stop())
  beforeEach(() => {
    Object.assign(server.behaviour, {
      protocolV2: true,
      auth: undefined,
      redirect: undefined,
    })
    Object.assign(server.behaviour, { dripMs: undefined, hang: undefined, down: false })
  })

  it('costs one request and less than 1 kB in all, once the server is known', async () => {
    const remote = new HttpRemote(url, anonymous)
    await remote.listRefs(exactly('refs/heads/main'), soon())
    server.reset()
    assert.deepEqual(await remote.listRefs(exactly('refs/heads/main'), soon()), [
      { name: 'refs/heads/main', oid: commit },
    ])
    const { requests, bytesIn, bytesOut, paths } = server.requests()
    assert.equal(requests, 1, paths.join())
    assert.ok(bytesOut < 500 && bytesIn + bytesOut < 1000, `${bytesIn} in, ${bytesOut} out`)
  })

  it('keeps one connection', async () => {
    const remote = new HttpRemote(url, anonymous)
    await remote.listRefs(exactly('refs/heads/main'), soon())
    let connections = 0
    const count = () => connections++
    server.onConnection(count)
    for (let i = 0; i < 5; i++) await remote.listRefs(exactly('refs/heads/main'), soon())
    assert.equal(connections, 0)
  })

  for (const protocolV2 of [true, false]) {
    it(`peels annotated tags (version ${protocolV2 ? 2 : 0})`, async () => {
      server.behaviour.protocolV2 = protocolV2
      const [tag] = await new HttpRemote(url, anonymous).listRefs(exactly('refs/tags/v1.0.0'), soon())
      assert.equal(tag?.peeled, commit)
      assert.notEqual(tag?.oid, commit)
    })

    it(`gives all that is kept, and nothing where there is nothing (version ${protocolV2 ? 2 : 0})`, async () => {
      server.behaviour.protocolV2 = protocolV2
      const remote = new HttpRemote(url, anonymous)
      const refs = await remote.listRefs({ prefixes: ['refs/heads/many/'], keep: (n) => n.includes('/many/') }, soon())
      assert.equal(refs.length, 2000)
      assert.deepEqual(await remote.listRefs(exactly('refs/heads/mai'), soon()), [])
      assert.equal(remote.features?.version, protocolV2 ? 2 : 0)
    })
  }

  it('stops at the limits of bytes and of refs', async () => {
    for (const protocolV2 of [true, false]) {
      server.behaviour.protocolV2 = protocolV2
      const few = new HttpRemote(url, anonymous, { maxAnswerBytes: 1e9, maxRefs: 1000 })
      assert.match((await failureOf(few.listRefs(everything, soon()))).message, /more than 1000 refs/)
      const short = new HttpRemote(url, anonymous, { maxAnswerBytes: 50_000, maxRefs: 1e6 })
      assert.match((await failureOf(short.listRefs(everything, soon()))).message, /longer than 50000 bytes/)
    }
  })

  it('finds a server again that has lost version 2, and one that has gained it', async () => {
    const remote = new HttpRemote(url, anonymous)
    await remote.listRefs(exactly('refs/heads/main'), soon())
    for (const [protocolV2, version] of [
      [false, 0],
      [true, 2],
    ] as const) {
      server.behaviour.protocolV2 = protocolV2
      assert.equal((await remote.listRefs(exactly('refs/heads/main'), soon())).length, 1)
      assert.equal(remote.features?.version, version)
    }
  })

  it('sends credentials, and says so when they are missing or wrong', async () => {
    server.behaviour.auth = { user: 'me', password: 'hunter2' }
    const query = exactly('refs/heads/main')
    assert.equal((await new HttpRemote(url, me).listRefs(query, soon())).length, 1)
    const wrong = accessFromSecret({ username: Buffer.from('me'), password: Buffer.from('other') }, 'ns/n')!
    for (const access of [anonymous, wrong]) {
      assert.match(
        (await failureOf(new HttpRemote(url, access).listRefs(query, soon()))).message,
        /authentication required/,
      )
    }
  })

  it('ends on the signal, whether the server hangs or trickles', async () => {
    for (const fault of [{ hang: 'info/refs' }, { dripMs: 50 }] as const) {
      Object.assign(server.behaviour, { hang: undefined, dripMs: undefined }, fault)
      const abort = new AbortController()
      const asked = failureOf(new HttpRemote(url, anonymous).listRefs(everything, abort.signal))
      setTimeout(() => abort.abort(), 300)
      assert.match((await asked).message, /aborted/)
    }
  })

  it('says that a server is down, or that there is no such repository', async () => {
    const missing = new HttpRemote(`${server.url}/other.git`, anonymous)
    assert.match((await failureOf(missing.listRefs(everything, soon()))).message, /repository not found/)
    server.behaviour.down = true
    assert.ok((await failureOf(new HttpRemote(url, me).listRefs(everything, soon()))).message.length < 300)
  })

  it('follows redirects without taking credentials to another host', async () => {
    server.behaviour.auth = { user: 'me', password: 'hunter2' }
    const seen: (string | undefined)[] = []
    const elsewhere = await listen((request, response) => {
      seen.push(request.headers.authorization)
      response.writeHead(301, { location: `${server.url}${request.url}` }).end()
    })
    try {
      const there = new HttpRemote(`${elsewhere.url}/app.git`, me)
      assert.match((await failureOf(there.listRefs(everything, soon()))).message, /authentication required/)
      assert.deepEqual(seen, [me.authorization])
      server.behaviour.auth = undefined
      const open = new HttpRemote(`${elsewhere.url}/app.git`, me)
      assert.equal((await open.listRefs(exactly('refs/heads/main'), soon())).length, 1)
      const forGit = await open.connect({ home: '/', path: '/', run: '/' })
      assert.equal(forGit.url, url)
      assert.ok(!JSON.stringify(forGit.env).includes('Authorization'))
    } finally {
      elsewhere.server.close()
    }
  })

  it('asks again when a connection was closed while it was idle', async () => {
    let requests = 0
    const flaky = await listen((request, response) => {
      if (++requests === 3) {
        request.socket.destroy()
        return
      }
      const advertised = Buffer.concat([encodePacket(`${commit} refs/heads/main\0 x`), flushPacket])
      response.writeHead(200, { 'content-type': 'application/x-git-upload-pack-advertisement' }).end(advertised)
    })
    try {
      const other = new HttpRemote(flaky.url, anonymous)
      for (let i = 0; i < 4; i++) assert.equal((await other.listRefs(everything, soon())).length, 1)
      assert.equal(requests, 5)
    } finally {
      flaky.server.close()
    }
  })

  it('gives up on a redirect that leads in a circle', async () => {
    server.behaviour.redirect = { status: 302, location: '*' }
    server.reset()
    assert.match(
      (await failureOf(new HttpRemote(url, me).listRefs(everything, soon()))).message,
      /more than 5 redirects/,
    )
    assert.equal(server.requests().requests, 6)
  })
})

describe('a server that is none', function () {
  this.timeout(60_000)
  const type = 'application/x-git-upload-pack-advertisement'
  const oid = 'a'.repeat(40)
  const answers: [string, string, string | Buffer, RegExp][] = [
    ['a web page', 'text/html', '<html>please log in</html>', /not a Git server that speaks smart HTTP/],
    ['no packets', type, 'hello world', /not hexadecimal/],
    ['an answer that ends within a packet', type, '0040abc', /ends within a packet/],
    ['an answer that ends too early', type, encodePacket('version 2'), /ends too early/],
    ['a refusal', type, encodePacket('ERR go \u001b[31maway\u001b[0m'), /remote error: go away$/],
    ['ids that are none', type, encodePacket('xyz refs/heads/main\0'), /malformed ref advertisement/],
    ['another kind of id', type, encodePacket(`${oid} refs/heads/main\0 object-format=sha256`), /only SHA-1/],
    [
      'version 2 without ls-refs',
      type,
      Buffer.concat([encodePacket('version 2'), flushPacket]),
      /does not offer ls-refs/,
    ],
    [
      'endless capabilities',
      type,
      Buffer.concat([encodePacket('version 2'), ...Array<Buffer>(200).fill(encodePacket('x'))]),
      /too many capabilities/,
    ],
  ]
  for (const [what, contentType, body, why] of answers) {
    it(`is told by ${what}`, async () => {
      const { server, url } = await listen((_, response) =>
        response.writeHead(200, { 'content-type': contentType }).end(body),
      )
      try {
        assert.match((await failureOf(new HttpRemote(url, me).listRefs(everything, soon()))).message, why)
      } finally {
        server.close()
      }
    })
  }

  it('is told by an encoding that nobody asked for', async () => {
    const { server, url } = await listen((_, response) => {
      response.writeHead(200, { 'content-type': type, 'content-encoding': 'gzip, gzip' }).end('x')
    })
    try {
      assert.match(
        (await failureOf(new HttpRemote(url, me).listRefs(everything, soon()))).message,
        /unexpected content/,
      )
    } finally {
      server.close()
    }
  })

  it('cannot make a message tell the credentials that it has been sent', async () => {
    const token = basicAccess('hunter2;"hunter', '')
    for (const header of ['content-type', 'content-encoding']) {
      const { server, url } = await listen((request, response) => {
        const [, encoded = ''] = request.headers.authorization!.split(' ')
        const echo = `${encoded}, ${Buffer.from(encoded, 'base64').toString()}`
        response.writeHead(200, { 'content-type': type, [header]: echo }).end('x')
      })
      try {
        for (const access of [me, token]) {
          const { message } = await failureOf(new HttpRemote(url, access).listRefs(everything, soon()))
          assert.match(message, /unexpected content [a-z]+ "\*\*\*, .*\*\*\*:?"$/)
        }
      } finally {
        server.close()
      }
    }
  })

  it('may say that a repository is empty by a single flush', async () => {
    const { server, url } = await listen((_, response) => {
      const service = encodePacket('# service=git-upload-pack')
      response.writeHead(200, { 'content-type': type }).end(Buffer.concat([service, flushPacket, flushPacket]))
    })
    try {
      assert.deepEqual(await new HttpRemote(url, me).listRefs(everything, soon()), [])
    } finally {
      server.close()
    }
  })
})

async function listen(handler: RequestListener): Promise<{ server: Server; url: string }> {
  const server = createServer(handler)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  assert.ok(typeof address === 'object' && address)
  return { server, url: `http://127.0.0.1:${address.port}` }
}
