import assert from 'node:assert/strict'
import { once } from 'node:events'
import { copyFile, open, readFile, rename, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises'
import { request, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { artifactMemoryLookups } from '../../runtime/metrics.ts'
import { eventually, eventuallyHolds } from '../../runtime/eventually.ts'
import { folder } from '../storage/test-storage.ts'
import { Contents } from './contents.ts'
import { answerFromMemory } from './fast-path.ts'
import { listen } from './listen.ts'
import { bytesOf, makeServer, send, storeLarge, type Answer, type ServerFixture } from './test-server.ts'

async function lookups(result: string): Promise<number> {
  const { values } = await artifactMemoryLookups.get()
  return values.find(({ labels }) => labels.result === result)?.value ?? 0
}

/** Changes bytes in the middle and puts the time of the last write back: only the time of the change tells. */
async function damageUnseen(file: string): Promise<void> {
  const before = await stat(file)
  const handle = await open(file, 'r+')
  await handle.write('damage', before.size >> 1)
  await handle.close()
  await utimes(file, before.atime, before.mtime)
}

function withoutDate({ status, headers, body }: Answer): Answer {
  return { status, headers: { ...headers, date: '' }, body }
}

async function serveOnce(f: ServerFixture, path: string): Promise<void> {
  assert.equal((await f.get(`/${path}`)).status, 200)
}

describe('file server, from memory', function () {
  this.timeout(60_000)

  it('gives the answers that express gives, and those that come from disk', async () => {
    await using f = await makeServer()
    await using fromDisk = await makeServer({ memoryBytes: 0 })
    const { path, digest, revision } = (await f.store('one')).artifact
    await fromDisk.store('one')
    const tag = `"${digest}"`
    const file = `/${path}`
    const table: [string, Record<string, string>?, string?][] = [
      [file],
      [file, {}, 'HEAD'],
      [file, { connection: 'keep-alive' }],
      [file, { 'accept-encoding': 'gzip', accept: 'text/html', referer: 'if-none-match' }],
      [file, { 'cache-control': 'no-cache', pragma: 'no-cache' }],
      [file, { 'if-none-match': tag }],
      [file, { 'If-None-Match': tag, 'Cache-Control': 'no-cache' }],
      [file, { 'if-none-match': '"x"' }],
      [file, { 'IF-MODIFIED-SINCE': 'Fri, 02 Jan 2026 03:04:05 GMT' }],
      [file, { 'if-match': '"x"' }],
      [file, { range: 'bytes=2-9' }],
      [file, { RANGE: 'bytes=-5' }],
      [file, { range: 'bytes=5-', 'if-range': '"x"' }],
      [file, { range: 'bytes=99999-' }],
      [file, { range: 'bytes=0-0' }, 'HEAD'],
      [file, {}, 'POST'],
      [file, { 'content-length': '0' }],
      [`${file}?x=y`],
      [`${file}/`],
      [`/${file}`],
      [file.replace('one', '%6fne')],
      [file.replace('one', 'two')],
      [file.replace('team-a', '..')],
      [file.replace('team-a', 'Team')],
      [`/${folder}/latest.tar.gz`],
      [`/${folder}?digest=${digest}`],
      [`/${folder}?revision=${revision}`],
      [`/${folder}`],
    ]
    for (const [target, headers, method] of table) {
      const ask = async ({ url }: { url: string }) => withoutDate(await send(url, target, headers, method))
      const what = `${method ?? 'GET'} ${target} ${JSON.stringify(headers)}`
      const express = await ask(f.express)
      for (const time of ['first', 'second']) assert.deepEqual(await ask(f.server), express, `${what}, ${time} time`)
      assert.deepEqual(await ask(fromDisk.server), express, `${what}, from disk`)
      // From here on the file is in memory, which the table must also show where it was not.
      await serveOnce(f, path)
      assert.deepEqual(await ask(f.server), express, `${what}, from memory`)
      assert.deepEqual(await ask(f.express), express, `${what}, from memory by express`)
    }
  })

  it('needs no express for what is in memory, and leaves everything else to it', async () => {
    await using f = await makeServer()
    const { path } = (await f.store('one')).artifact
    const contents = new Contents(f.storage, 2 ** 20)
    const others: string[] = []
    const server = await listen(
      answerFromMemory(contents, (req, res) => {
        others.push(`${req.method} ${req.url}`)
        res.end('other')
      }),
      '127.0.0.1:0',
    )
    const bodyOf = async (target: string) => (await send(server.url, target)).body
    assert.equal(String(await bodyOf(`/${path}`)), 'other', 'not in memory yet')
    const content = await contents.open(path)
    assert.ok(typeof content === 'object')
    await content.close()
    assert.deepEqual(await bodyOf(`/${path}`), await bytesOf(f, path))
    assert.equal(String(await bodyOf(`/${path}?a`)), 'other')
    await rm(join(f.root, path))
    assert.equal(String(await bodyOf(`/${path}`)), 'other')
    await server.close()
    assert.deepEqual(others, [`GET /${path}`, `GET /${path}?a`, `GET /${path}`])
  })

  for (const [what, change] of Object.entries({
    'edited in place with its old time': damageUnseen,
    'replaced by another file': async (file: string) => {
      await writeFile(`${file}.new`, 'other bytes')
      await rename(`${file}.new`, file)
    },
    'a link to a file with its bytes': async (file: string) => {
      await rename(file, `${file}.moved`)
      await symlink(`${file}.moved`, file)
    },
  })) {
    it(`answers 503, and tells, when a file in memory is ${what}, until it is repaired`, async () => {
      await using f = await makeServer()
      const { path } = (await f.store('one')).artifact
      const bytes = await bytesOf(f, path)
      await serveOnce(f, path)
      await change(join(f.root, path))
      const { status, headers } = await f.get(`/${path}`)
      assert.deepEqual([status, headers['retry-after']], [503, '5'])
      assert.deepEqual(f.damaged, [path])
      await f.store('one')
      assert.deepEqual((await f.get(`/${path}`)).body, bytes)
    })
  }

  it('goes on when a file in memory is replaced by one with the same bytes', async () => {
    await using f = await makeServer()
    const { path } = (await f.store('one')).artifact
    const file = join(f.root, path)
    const bytes = await readFile(file)
    await serveOnce(f, path)
    await copyFile(file, `${file}.new`)
    await rename(`${file}.new`, file)
    assert.deepEqual((await f.get(`/${path}`)).body, bytes)
    assert.deepEqual(f.damaged, [])
  })

  it('notices damage that came through the name of another object', async () => {
    await using f = await makeServer()
    const one = (await f.store('one')).artifact
    const other = (await f.store('one', 'r', 'one', 'gitrepository/team-b/app')).artifact
    assert.equal((await stat(join(f.root, one.path))).ino, (await stat(join(f.root, other.path))).ino)
    await serveOnce(f, one.path)
    await serveOnce(f, other.path)
    await damageUnseen(join(f.root, other.path))
    assert.equal((await f.get(`/${one.path}`)).status, 503)
    assert.equal((await f.get(`/${other.path}`)).status, 503)
  })

  it('serves the new file as latest.tar.gz as soon as it is stored', async () => {
    await using f = await makeServer()
    for (const name of ['one', 'two', 'one', 'three']) {
      const { artifact } = await f.store(name)
      const { headers, body } = await f.get(`/${folder}/latest.tar.gz`)
      assert.equal(headers.etag, `"${artifact.digest}"`)
      assert.deepEqual(body, await bytesOf(f, artifact.path))
    }
  })

  it('looks once at a file that many ask for at the same time', async () => {
    let looks = 0
    await using f = await makeServer({}, (storage) => ({
      find: (...args) => storage.find(...args),
      open: (...args) => storage.open(...args),
      look: (path) => {
        looks++
        return storage.look(path)
      },
    }))
    const { path, digest } = (await f.store('one')).artifact
    await serveOnce(f, path)
    looks = 0
    const socket = connect(f.server.port, '127.0.0.1')
    const ask = (connection: string) => `GET /${path} HTTP/1.1\r\nHost: x\r\nConnection: ${connection}\r\n\r\n`
    socket.write(ask('keep-alive').repeat(49) + ask('close'))
    const answers = (await text(socket)).split(`ETag: "${digest}"`).length - 1
    assert.deepEqual({ answers, looks }, { answers: 50, looks: 1 })
  })

  it('gives right bytes to many who ask for more files than fit, at once', async () => {
    await using f = await makeServer({ memoryBytes: 8 * 1024 })
    const stored = new Map<string, Buffer>()
    for (let i = 0; i < 12; i++) {
      const { path } = (await f.store(`content ${i}`, `r${i}`, `f${i}`, `gitrepository/team-${i}/app`)).artifact
      stored.set(path, await bytesOf(f, path))
    }
    const paths = Array.from({ length: 20 }, () => [...stored.keys()]).flat()
    const answers = await Promise.all(paths.map((path) => f.get(`/${path}`)))
    for (const [i, { status, body }] of answers.entries()) {
      assert.equal(status, 200)
      assert.deepEqual(body, stored.get(paths[i]!))
    }
    assert.deepEqual(f.damaged, [])
  })

  it('takes memory back from clients that have gone away, and serves from disk until then', async () => {
    await using f = await makeServer({ memoryBytes: 4 * 7_100_000 })
    const paths: string[] = []
    for (const name of ['a', 'b', 'c', 'd', 'e']) {
      paths.push((await storeLarge(f, `gitrepository/x/${name}`, 7_000_000 - paths.length)).path)
    }
    const last = paths.pop()!
    const responses: IncomingMessage[] = []
    for (const path of paths) {
      const [response] = await once(request(f.server.url, { path: `/${path}` }).end(), 'response')
      responses.push(response.pause())
    }
    const refused = await lookups('none')
    const bytes = await bytesOf(f, last)
    assert.ok((await f.get(`/${last}`)).body.equals(bytes))
    assert.equal(await lookups('none'), refused + 1)
    for (const response of responses) response.destroy()
    const missed = await lookups('miss')
    await eventuallyHolds(async () => {
      assert.ok((await f.get(`/${last}`)).body.equals(bytes))
      assert.equal(await lookups('miss'), missed + 1)
    })
    const hits = await lookups('hit')
    await eventually(async () => (await f.get(`/${last}`)).status === 200)
    assert.equal(await lookups('hit'), hits + 1)
  })
})
