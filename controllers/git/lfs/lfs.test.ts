import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { readdir, rm } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { startLfsServer, type BatchAnswer, type LfsServer } from '../../../e2e/lfs-server.ts'
import { startForwardProxy } from '../../../e2e/tools/forward-proxy.ts'
import { temporaryFolder } from '../../../e2e/tools/temporary.ts'
import type { Entries, Entry } from '../../artifact/entry.ts'
import { anonymous, type Access } from '../access/access.ts'
import { basicCredentials } from '../access/credentials.ts'
import { openContent } from '../content/content.ts'
import { failureOf, openStage, wholeOf, type Stage } from '../test-support.ts'
import { withLfs, type LfsOptions } from './lfs.ts'

async function listOf(entries: Entries): Promise<Entry[]> {
  const list: Entry[] = []
  for await (const entry of entries) list.push(entry)
  return list
}

describe('files in Git LFS', function () {
  this.timeout(300_000)
  let stage: Stage
  let lfs: LfsServer
  let folder: string
  let count = 0
  const committed = new Map<string, Entry[]>()
  const access: Access = { ...anonymous, key: 'user', ...basicCredentials('user', 'pass') }
  const large = randomBytes(3_000_000)
  const files: Record<string, string | Buffer> = {
    'a.bin': 'small',
    'dir/copy.bin': 'small',
    'dir/large.bin': large,
    'dir/other.bin': randomBytes(700_000),
    'text.txt': 'no pointer '.repeat(30),
  }

  before(async () => {
    ;[stage, lfs, folder] = await Promise.all([openStage(), startLfsServer(), temporaryFolder()])
    await serve('app', files)
  })
  after(async () => {
    await Promise.all([stage.close(), lfs.stop()])
    await rm(folder, { recursive: true, force: true })
  })
  afterEach(() => {
    lfs.alter = lfs.answer = undefined
    lfs.requests.length = 0
  })

  /** Commits in Git LFS, with the pointers where our own server gives them. */
  async function serve(name: string, content: Record<string, string | Buffer>): Promise<void> {
    const repository = await stage.server.repository(`${name}.git`)
    const work = await lfs.commit(name, content)
    await stage.run('git', ['-C', work, 'push', '--quiet', '--no-verify', repository.dir, 'main'])
    committed.set(name, await entriesIn(name))
  }

  /** The files of a repository's commit, read out of a mirror once. */
  async function entriesIn(name: string): Promise<Entry[]> {
    const repository = join(stage.server.root, `${name}.git`)
    const sha = (await stage.run('git', ['--git-dir', repository, 'rev-parse', 'main'])).trim()
    const mirror = stage.mirrors.mirrorFor(`${stage.server.url}/${name}.git`, anonymous)
    const content = await openContent({ mirror, sha, signal: AbortSignal.timeout(60_000) })
    try {
      const entries = await listOf(content.entries)
      const bodies = await Promise.all(entries.map(async (entry) => await wholeOf(await entry.open())))
      return entries.map(({ path, mode, sizeBytes }, i) => {
        return { path, mode, sizeBytes, open: () => Promise.resolve(bodies[i]!) }
      })
    } finally {
      await content.close()
    }
  }

  const remoteOf = (url: string, as = access) => ({ url, access: as })

  /** Each call has a store of its own. */
  function optionsOf(name: string): LfsOptions {
    const own = { folder: join(folder, String(++count)), key: 'key', maxBytes: 1e9 }
    return { ...own, remote: remoteOf(`${lfs.url}/${name}`), signal: AbortSignal.timeout(60_000) }
  }

  async function entriesOf(name: string, options: Partial<LfsOptions> = {}): Promise<Map<string, Entry>> {
    const entries = await listOf(withLfs(committed.get(name)!, { ...optionsOf(name), ...options }))
    return new Map(entries.map((entry) => [entry.path, entry]))
  }

  async function read(entries: Map<string, Entry>, path: string): Promise<Buffer> {
    return await wholeOf(await entries.get(path)!.open())
  }

  const hashOf = (content: string | Buffer) => createHash('sha256').update(content).digest('hex')

  it('are those that were pushed, with their sizes', async () => {
    const entries = await entriesOf('app')
    assert.deepEqual([...entries.keys()], ['.gitattributes', ...Object.keys(files)])
    for (const [path, content] of Object.entries(files)) {
      assert.equal(entries.get(path)!.sizeBytes, content.length)
      assert.ok((await read(entries, path)).equals(Buffer.from(content)), path)
    }
    assert.equal(entries.get('a.bin')!.contentId, `lfs:key:${hashOf('small')}`)
    assert.ok((await entries.get('dir/large.bin')!.open()) instanceof Readable)
  })

  it('are asked for when the first is opened, all in one request, and downloaded once each', async () => {
    const entries = await entriesOf('app')
    assert.equal(lfs.requests.length, 0)
    await Promise.all([...entries.keys()].map((path) => read(entries, path)))
    const batches = lfs.requests.filter(({ method }) => method === 'POST')
    assert.deepEqual(
      batches.map(({ path, objects }) => [path, objects]),
      [['/app.git/info/lfs/objects/batch', 3]],
    )
    assert.equal(lfs.requests.length, 1 + 3)
  })

  it('are asked for in requests of a hundred', async () => {
    const many = Object.fromEntries(Array.from({ length: 120 }, (_, i) => [`${1000 + i}.bin`, `content ${i}`]))
    await serve('many', many)
    const entries = await entriesOf('many')
    for (const [path, content] of Object.entries(many)) assert.equal(String(await read(entries, path)), content)
    const batches = lfs.requests.filter(({ method }) => method === 'POST')
    assert.deepEqual(
      batches.map(({ objects }) => objects),
      [100, 20],
    )
  })

  it('are kept for the next pass', async () => {
    const store = join(folder, 'kept')
    for (const again of [false, true]) {
      const entries = await entriesOf('app', { folder: store })
      for (const [path, content] of Object.entries(files)) {
        assert.ok((await read(entries, path)).equals(Buffer.from(content)))
      }
      assert.equal(lfs.requests.length === 0, again)
      lfs.requests.length = 0
    }
  })

  it('that are missing are named, and only where they are read', async () => {
    lfs.alter = ({ objects }) => {
      objects[0] = {
        oid: objects[0]!.oid,
        size: objects[0]!.size,
        error: { code: 404, message: 'Object does not exist' },
      }
    }
    const entries = await entriesOf('app')
    const err = await failureOf(read(entries, 'a.bin'))
    assert.equal(err.reason, 'GitOperationFailed')
    const what = `Git LFS: object '${hashOf('small')}' of 'a.bin': Object does not exist \\(404\\)$`
    assert.match(
      err.message,
      new RegExp(`^failed to checkout and determine revision: unable to clone '${lfs.url}/app': ${what}`),
    )
    assert.equal((await read(entries, 'dir/other.bin')).length, 700_000)
  })

  it('need the credentials of the repository, which only its own host gets', async () => {
    const err = await failureOf(
      read(await entriesOf('app', { remote: remoteOf(`${lfs.url}/app`, anonymous) }), 'a.bin'),
    )
    assert.match(err.message, /authentication required \(HTTP 401\)$/)
    lfs.requests.length = 0
    const elsewhere = lfs.url.replace('127.0.0.1', 'localhost')
    lfs.alter = ({ objects }) => {
      for (const { actions } of objects) actions!.download!.href = actions!.download!.href.replace(lfs.url, elsewhere)
    }
    await read(await entriesOf('app'), 'a.bin')
    lfs.alter = undefined
    await read(await entriesOf('app'), 'a.bin')
    assert.deepEqual(
      lfs.requests.map(({ method, authorization }) => [method, authorization]),
      [
        ['POST', access.authorization],
        ['GET', undefined],
        ['POST', access.authorization],
        ['GET', access.authorization],
      ],
    )
  })

  it('take the headers that the server gives, but not to another host', async () => {
    const header = { Authorization: 'Bearer of-the-object', Host: 'example.com', 'Content-Length': '5' }
    lfs.alter = ({ objects }) => {
      for (const { actions } of objects) actions!.download!.header = header
    }
    lfs.answer = ({ url = '', headers }, response) => {
      if (!url.startsWith('/storage/') || headers.host!.startsWith('localhost')) return false
      response.writeHead(307, { location: `${lfs.url.replace('127.0.0.1', 'localhost')}${url}` }).end()
      return true
    }
    await read(await entriesOf('app'), 'a.bin')
    const gets = lfs.requests.filter(({ method }) => method === 'GET')
    assert.deepEqual(
      gets.map(({ authorization }) => authorization),
      ['Bearer of-the-object', undefined],
    )
  })

  const echo = { code: 401, message: `got ${access.authorization}` }
  const answers: [string, (answer: BatchAnswer) => void | string, RegExp][] = [
    ['no JSON', () => '<html>', /the answer is not JSON$/],
    ['something else', () => '[1]', /the answer is not one of the batch API$/],
    ['too much', () => ' '.repeat(2_000_000), /the answer is longer than 1048576 bytes$/],
    ['nothing', () => '{"objects":[]}', /object '[0-9a-f]{64}' of 'a\.bin': the server does not say where it is$/],
    ['another transfer', (answer) => void (answer.transfer = 'tus'), /another transfer than 'basic'$/],
    ['another hash', (answer) => void (answer.hash_algo = 'sha512'), /another hash than 'sha256'$/],
    ['another size', ({ objects }) => void (objects[0]!.size = 6), /it has 6 bytes where the pointer says 5$/],
    ['what it was told', ({ objects }) => void (objects[0]!.error = echo), /of 'a\.bin': got Basic \*\*\* \(401\)$/],
    ['a file', at('file:///etc/passwd'), /redirected to another protocol$/],
    ['a link-local address', at('http://169.254.169.254/latest'), /redirected to a link-local address$/],
    ['what is no address', at('http://'), /redirected to something that is not a URL$/],
    ['a long address', at(`http://x/${'a'.repeat(10_000)}`), /its address is longer than 8192 characters$/],
    ['a line in a header', withHeader({ a: 'b\r\nc: d' }), /it comes with a header that is none$/],
    ['a lot of headers', withHeader({ a: 'b'.repeat(20_000) }), /more than 16384 characters of headers$/],
    ['what has expired', expired, /the server gives an address that has already expired$/],
  ]
  function at(href: string) {
    return ({ objects }: BatchAnswer) => void (objects[0]!.actions!.download!.href = href)
  }
  function withHeader(header: Record<string, string>) {
    return ({ objects }: BatchAnswer) => void (objects[0]!.actions!.download!.header = header)
  }
  function expired({ objects }: BatchAnswer) {
    for (const { actions } of objects) actions!.download!.expires_in = -5
  }
  for (const [what, alter, why] of answers) {
    it(`are refused where the server answers ${what}`, async () => {
      const entries = await entriesOf('app')
      lfs.alter = alter
      const err = await failureOf(read(entries, 'a.bin'))
      assert.match(err.message, why)
      assert.equal(err.reason, 'GitOperationFailed')
      assert.ok(err.message.length < 800)
    })
  }

  it('are asked for again where the address has expired meanwhile', async () => {
    lfs.alter = (answer) => {
      lfs.alter = undefined
      for (const { actions } of answer.objects) actions!.download!.expires_at = '2020-01-01T00:00:00Z'
    }
    assert.equal(String(await read(await entriesOf('app'), 'a.bin')), 'small')
    assert.equal(lfs.requests.filter(({ method }) => method === 'POST').length, 2)
  })

  const bodies: [string, (response: ServerResponse) => void, RegExp][] = [
    ['too short', (response) => void response.end('sma'), /it has 3 bytes where the pointer says 5$/],
    [
      'too long',
      (response) => void response.end('small and more'),
      /it has more than the 5 bytes that the pointer says$/,
    ],
    ['something else', (response) => void response.end('smell'), /its content is not what the pointer says$/],
    ['nothing', (response) => void response.destroy(), /of 'a\.bin'|other side closed|socket hang up|ECONNRESET/],
    ['compressed', (response) => void response.writeHead(200, { 'content-encoding': 'gzip' }).end(), /is compressed/],
    ['an error', (response) => void response.writeHead(500).end(), /unexpected HTTP status 500$/],
    [
      'a redirect to itself',
      (response) => void response.writeHead(302, { location: '#' }).end(),
      /more than 5 redirects$/,
    ],
  ]
  for (const [what, answer, why] of bodies) {
    it(`are asked for twice where the server sends ${what}`, async () => {
      const once = { done: false }
      const fault = ({ url = '' }: IncomingMessage, response: ServerResponse) => {
        if (once.done || !url.startsWith('/storage/')) return false
        answer(response)
        return true
      }
      const store = join(folder, `odd-${++count}`)
      lfs.answer = fault
      const err = await failureOf(read(await entriesOf('app', { folder: store }), 'a.bin'))
      assert.match(err.message, why)
      assert.deepEqual(await readdir(store).catch(() => []), [])
      lfs.answer = (request, response) =>
        request.url!.startsWith('/storage/') ? fault(request, response) && (once.done = true) : false
      assert.equal(String(await read(await entriesOf('app'), 'a.bin')), 'small')
    })
  }

  it('that are large fail at their end where they are not right', async () => {
    const wrong = Buffer.concat([large.subarray(1), Buffer.of(0)])
    lfs.answer = ({ url = '' }, response) => {
      if (!url.startsWith('/storage/')) return false
      response.end(wrong)
      return true
    }
    const store = join(folder, 'wrong')
    const entries = await entriesOf('app', { folder: store })
    assert.match((await failureOf(read(entries, 'dir/large.bin'))).message, /of 'dir\/large\.bin': its content is not/)
    assert.deepEqual(await readdir(store), [])
  })

  it('wait as long as the server wants', async () => {
    // One of its own, as nobody asks it for a while.
    const busy = await startLfsServer()
    try {
      busy.answer = (_request, response) => {
        response.writeHead(429, { 'retry-after': '120' }).end()
        return true
      }
      const entries = await entriesOf('app', { remote: remoteOf(`${busy.url}/app`) })
      for (const path of ['a.bin', 'dir/other.bin']) {
        const err = await failureOf(read(entries, path))
        assert.ok(err.retryAfterMs! > 100_000, err.message)
      }
      assert.equal(busy.requests.length, 1)
    } finally {
      await busy.stop()
    }
  })

  it('end with the signal', async () => {
    const abort = new AbortController()
    lfs.answer = () => {
      abort.abort()
      return true
    }
    const entries = await entriesOf('app', { signal: abort.signal })
    assert.match((await failureOf(read(entries, 'a.bin'))).message, /: aborted$/)
  })

  it('are not what a symbolic link or a pointer to the letter alone is about', async () => {
    const [first] = committed.get('app')!.filter(({ path }) => path === 'a.bin')
    const pointer = await wholeOf(await first!.open())
    const entry = (path: string, content: string | Buffer, type: Entry['type'] = 'file'): Entry => {
      const bytes = Buffer.from(content)
      return { path, type, mode: 0o644, sizeBytes: bytes.length, open: () => Promise.resolve(bytes) }
    }
    const odd = [entry('link', pointer, 'symlink'), entry('crlf.bin', String(pointer).replaceAll('\n', '\r\n'))]
    assert.deepEqual(await listOf(withLfs(odd, optionsOf('app'))), odd)
    const extended = entry('x.bin', String(pointer).replace('oid', `ext-0-a sha256:${'0'.repeat(64)}\noid`))
    const err = await failureOf(listOf(withLfs([extended], optionsOf('app'))))
    assert.match(err.message, /Git LFS: 'x\.bin': the LFS pointer names extensions, which are not supported$/)
  })

  it('of a submodule are asked for where the submodule is', async () => {
    const repository = await stage.server.repository('super.git')
    const url = `${stage.server.url}/app.git`
    const main = (await stage.run('git', ['--git-dir', join(stage.server.root, 'app.git'), 'rev-parse', 'main'])).trim()
    const modules = `[submodule "x"]\n\tpath = sub\n\turl = ${url}\n`
    const sha = await repository.commit({ '.gitmodules': modules, sub: { submodule: main } }, 'super')
    const mirror = stage.mirrors.mirrorFor(`${stage.server.url}/super.git`, anonymous)
    const content = await openContent({
      mirror,
      sha,
      submodules: stage.mirrors,
      transform: (entries, { remote }) =>
        withLfs(entries, { ...optionsOf('app'), remote: remoteOf(remote.url.replace(stage.server.url, lfs.url)) }),
      signal: AbortSignal.timeout(60_000),
    })
    try {
      const [small] = (await listOf(content.entries)).filter(({ path }) => path === 'sub/a.bin')
      assert.equal(String(await wholeOf(await small!.open())), 'small')
    } finally {
      await content.close()
    }
    assert.equal(lfs.requests[0]!.path, '/app.git/info/lfs/objects/batch')
  })

  it('are recognised once: what has been read is not read again for it', async () => {
    let opened = 0
    const counted = committed.get('app')!.map((entry) => {
      const open = () => (opened++, entry.open())
      return { ...entry, contentId: `counted:${entry.path}`, open }
    })
    const first = await listOf(withLfs(counted, optionsOf('app')))
    const before = opened
    assert.equal(before, Object.keys(files).length)
    const sizes = (entries: Entry[]) => entries.map(({ path, sizeBytes }) => [path, sizeBytes])
    assert.deepEqual(sizes(await listOf(withLfs(counted, optionsOf('app')))), sizes(first))
    assert.equal(opened, before)
  })

  it('come through the proxy of the repository', async () => {
    const proxy = await startForwardProxy()
    try {
      const { url } = proxy
      const entries = await entriesOf('app', { remote: remoteOf(`${lfs.url}/app`, { ...access, proxy: { url } }) })
      assert.equal(String(await read(entries, 'a.bin')), 'small')
      assert.ok(proxy.counters().connections > 0)
    } finally {
      await proxy.stop()
    }
  })
})
