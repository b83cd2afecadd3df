import assert from 'node:assert/strict'
import { once } from 'node:events'
import { appendFile, open, readdir, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { eventually } from '../../runtime/eventually.ts'
import type { StoredArtifact } from '../stored.ts'
import { bytesOf, makeServer, storeLarge } from './test-server.ts'
import { folder } from '../storage/test-storage.ts'

async function openFiles(): Promise<number> {
  return (await readdir('/dev/fd')).length
}

/** What is said of open files holds for those that are not sent from memory. */
const fromDisk = { memoryBytes: 0 }

describe('file server', function () {
  this.timeout(60_000)

  it('serves a stored file with what clients need to know', async () => {
    await using f = await makeServer()
    const { artifact } = await f.store('one')
    const { status, headers, body } = await f.get(`/${artifact.path}`)
    assert.equal(status, 200)
    assert.deepEqual(body, await bytesOf(f, artifact.path))
    assert.equal(headers['content-type'], 'application/gzip')
    assert.equal(headers['content-length'], String(artifact.size))
    assert.equal(headers.etag, `"${artifact.digest}"`)
    assert.equal(headers['last-modified'], 'Fri, 02 Jan 2026 03:04:05 GMT')
    assert.equal(headers['accept-ranges'], 'bytes')
    assert.equal(headers['cache-control'], 'no-cache, no-transform')
    assert.equal(headers['x-content-type-options'], 'nosniff')
    assert.equal(headers['x-powered-by'], undefined)
    assert.equal(headers['content-encoding'], undefined)
  })

  it('answers HEAD like GET, without the body', async () => {
    await using f = await makeServer()
    const { artifact } = await f.store('one')
    const get = await f.get(`/${artifact.path}`)
    const head = await f.get(`/${artifact.path}`, { range: 'bytes=0-3' }, 'HEAD')
    assert.deepEqual([head.status, head.body.length], [200, 0])
    assert.deepEqual({ ...head.headers, date: '' }, { ...get.headers, date: '' })
  })

  it('serves large files whole', async () => {
    await using f = await makeServer(fromDisk)
    const artifact = await storeLarge(f)
    const { body } = await f.get(`/${artifact.path}`)
    assert.ok(body.equals(await bytesOf(f, artifact.path)))
  })

  it('serves the current file as latest.tar.gz', async () => {
    await using f = await makeServer()
    await f.store('one')
    const { artifact } = await f.store('two')
    const { status, headers } = await f.get(`/${folder}/latest.tar.gz`)
    assert.deepEqual([status, headers.etag], [200, `"${artifact.digest}"`])
  })

  it('serves by revision, digest and time, and tells where the file is', async () => {
    await using f = await makeServer()
    const one = (await f.store('one')).artifact
    f.clock.ms += 60_000
    const two = (await f.store('two')).artifact
    const wanted: [string, StoredArtifact][] = [
      [`revision=${one.revision}`, one],
      [`revision=${encodeURIComponent(two.revision)}`, two],
      [`digest=${one.digest}`, one],
      [`time=${one.lastUpdateTime}`, one],
      ['time=2026-01-02T03:05:00Z', one],
      ['time=2026-01-02T04:05:06%2B01:00', two],
    ]
    for (const [query, artifact] of wanted) {
      const { status, headers } = await f.get(`/${folder}?${query}`)
      assert.deepEqual(
        [status, headers.etag, headers['content-location']],
        [200, `"${artifact.digest}"`, `/${artifact.path}`],
        query,
      )
    }
    assert.match((await f.get(`/${folder}?digest=${one.digest}`)).headers['cache-control']!, /immutable/)
    for (const query of ['revision=nope', 'digest=sha256:00', 'time=2020-01-01T00:00:00Z']) {
      assert.equal((await f.get(`/${folder}?${query}`)).status, 404, query)
    }
    assert.equal((await f.get(`/${folder}?time=tomorrow`)).status, 400)
  })

  it('answers conditional requests', async () => {
    await using f = await makeServer()
    const { artifact } = await f.store('one')
    const tag = `"${artifact.digest}"`
    const [before, at, after] = [
      'Fri, 02 Jan 2026 03:04:04 GMT',
      'Fri, 02 Jan 2026 03:04:05 GMT',
      'Fri, 02 Jan 2026 03:04:06 GMT',
    ]
    const table: [Record<string, string>, number][] = [
      [{ 'if-none-match': tag }, 304],
      [{ 'if-none-match': `W/${tag}` }, 304],
      [{ 'if-none-match': `"x", ${tag}` }, 304],
      [{ 'if-none-match': '*' }, 304],
      [{ 'if-none-match': '"x"' }, 200],
      [{ 'if-none-match': '"x"', 'if-modified-since': at }, 200],
      [{ 'if-modified-since': at }, 304],
      [{ 'if-modified-since': after }, 304],
      [{ 'if-modified-since': before }, 200],
      [{ 'if-modified-since': 'garbage' }, 200],
      [{ 'if-match': tag }, 200],
      [{ 'if-match': '*' }, 200],
      [{ 'if-match': '"x"' }, 412],
      [{ 'if-unmodified-since': at }, 200],
      [{ 'if-unmodified-since': before }, 412],
    ]
    for (const [headers, expected] of table) {
      const { status, body } = await f.get(`/${artifact.path}`, headers)
      assert.equal(status, expected, JSON.stringify(headers))
      assert.equal(body.length, expected === 200 ? artifact.size : 0)
    }
  })

  it('answers one range, and ignores several or those of another version', async () => {
    await using f = await makeServer()
    const { artifact } = await f.store('one')
    const bytes = await bytesOf(f, artifact.path)
    const size = bytes.length
    const tag = `"${artifact.digest}"`
    const parts: [Record<string, string>, [number, number] | number][] = [
      [{ range: 'bytes=0-9' }, [0, 9]],
      [{ range: 'bytes=5-5' }, [5, 5]],
      [{ range: 'bytes=10-' }, [10, size - 1]],
      [{ range: 'bytes=-7' }, [size - 7, size - 1]],
      [{ range: `bytes=3-${size * 2}` }, [3, size - 1]],
      [{ range: `bytes=-${size * 2}` }, [0, size - 1]],
      [{ range: 'bytes=0-9', 'if-range': tag }, [0, 9]],
      [{ range: 'bytes=0-9', 'if-range': 'Fri, 02 Jan 2026 03:04:05 GMT' }, [0, 9]],
      [{ range: 'bytes=0-9', 'if-range': '"other"' }, 200],
      [{ range: 'bytes=0-9', 'if-range': `W/${tag}` }, 200],
      [{ range: 'bytes=0-9', 'if-range': 'Fri, 02 Jan 2026 03:04:06 GMT' }, 200],
      [{ range: 'bytes=0-1,5-6' }, 200],
      [{ range: `bytes=${Array.from({ length: 1000 }, (_, i) => `${i}-${i}`).join(',')}` }, 200],
      [{ range: 'lines=0-9' }, 200],
      [{ range: 'bytes=x' }, 200],
      [{ range: 'bytes=9-0' }, 200],
      [{ range: 'bytes=-' }, 200],
      [{ range: 'bytes=-0' }, 416],
      [{ range: `bytes=${size}-` }, 416],
      [{ range: `bytes=${size}-`, 'if-range': '"other"' }, 200],
    ]
    for (const [headers, expected] of parts) {
      const answer = await f.get(`/${artifact.path}`, headers)
      const what = JSON.stringify(headers).slice(0, 80)
      if (Array.isArray(expected)) {
        const [start, end] = expected
        assert.equal(answer.status, 206, what)
        assert.equal(answer.headers['content-range'], `bytes ${start}-${end}/${size}`, what)
        assert.deepEqual(answer.body, bytes.subarray(start, end + 1), what)
      } else {
        assert.equal(answer.status, expected, what)
        if (expected === 416) assert.equal(answer.headers['content-range'], `bytes */${size}`)
        else assert.deepEqual(answer.body, bytes, what)
      }
    }
  })

  it('has no other methods', async () => {
    await using f = await makeServer()
    const { artifact } = await f.store('one')
    for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND']) {
      const { status, headers } = await f.get(`/${artifact.path}`, {}, method)
      assert.deepEqual([status, headers.allow], [405, 'GET, HEAD'], method)
    }
    assert.ok(await bytesOf(f, artifact.path))
  })

  it('lists no folder, and reaches nothing that is not an artifact', async () => {
    await using f = await makeServer()
    const { artifact } = await f.store('one')
    await symlink('/etc/passwd', join(f.root, folder, 'passwd.tar.gz'))
    await writeFile(join(f.root, 'secret.tar.gz'), 'secret')
    await writeFile(join(f.root, folder, 'stray.tar.gz'), 'stray')
    const file = artifact.path.split('/').at(-1)!
    const table: [string, number][] = [
      ['/', 404],
      ['/gitrepository', 404],
      ['/gitrepository/', 404],
      [`/${folder}`, 404],
      [`/${folder}/`, 404],
      [`/${folder}/.history.json`, 404],
      ['/.openflux/id', 404],
      ['/secret.tar.gz', 404],
      [`/${folder}/passwd.tar.gz`, 404],
      [`/${folder}/stray.tar.gz`, 404],
      [`/${folder}/../../../secret.tar.gz`, 400],
      [`/${folder}/..%2f..%2f..%2fsecret.tar.gz`, 400],
      ['/..%2f..%2f..%2fetc%2fpasswd', 400],
      [`/${folder}/${file}%00`, 400],
      [`/${folder}/${file}/`, 404],
      [`/${folder.replaceAll('/', '%2f')}/${file}`, 400],
      [`/${'x'.repeat(20_000)}`, 414],
      [`/${folder}/${'../'.repeat(2000)}etc/passwd`, 400],
    ]
    for (const [path, expected] of table) {
      const { status, body } = await f.get(path)
      assert.equal(status, expected, path.slice(0, 80))
      assert.ok(body.length < 100 && !body.includes('root:') && !body.includes('secret'), path)
    }
    assert.deepEqual(f.damaged, [])
  })

  it('answers 503, and tells, for what is damaged, and serves the repaired file again', async () => {
    await using f = await makeServer()
    const { artifact } = await f.store('one')
    const bytes = await bytesOf(f, artifact.path)
    await appendFile(join(f.root, artifact.path), 'X')
    for (const path of [`/${artifact.path}`, `/${folder}/latest.tar.gz`, `/${folder}?digest=${artifact.digest}`]) {
      const { status, headers } = await f.get(path)
      assert.deepEqual(
        [status, headers['retry-after'], headers['cache-control']?.includes('immutable')],
        [503, '5', false],
        path,
      )
    }
    assert.deepEqual(f.damaged, [artifact.path, `${folder}/latest.tar.gz`, artifact.path])
    await f.store('one')
    assert.deepEqual((await f.get(`/${artifact.path}`)).body, bytes)
  })

  it('answers 503 for an address that the live Artifact answers and whose file is lost, and has it built anew', async () => {
    await using f = await makeServer()
    const { path } = (await f.store('a')).artifact
    await rm(join(f.root, path))
    const addresses = [
      `/${folder}/latest.tar.gz`,
      `/${folder}?digest=sha256:${'0'.repeat(64)}`,
      `/${folder}?revision=r`,
    ]
    f.state.current = path
    for (const address of addresses) {
      f.damaged.length = 0
      const { status, headers } = await f.get(address)
      assert.deepEqual([address, status, headers['retry-after']], [address, 503, '5'])
      assert.deepEqual(f.damaged, [path])
    }
    f.state.current = undefined
    for (const address of addresses) assert.equal((await f.get(address)).status, 404)
  })

  it('answers 503 for what is missing but expected, or missing before all is ready, else 404', async () => {
    await using f = await makeServer()
    const { artifact } = await f.store('one')
    await rm(join(f.root, artifact.path))
    const [gone, never] = [artifact.path, `${folder}/never.tar.gz`]
    assert.equal((await f.get(`/${gone}`)).status, 404)
    f.state.expected = [gone]
    assert.equal((await f.get(`/${gone}`)).status, 503)
    assert.equal((await f.get(`/${never}`)).status, 404)
    assert.deepEqual(f.damaged, [gone])
    f.state.ready = false
    for (const path of [
      never,
      `${folder}/latest.tar.gz`,
      `${folder}?revision=nope`,
      'gitrepository/x/y/latest.tar.gz',
    ]) {
      const { status, headers } = await f.get(`/${path}`)
      assert.deepEqual([status, headers['retry-after']], [503, '5'], path)
    }
    assert.equal((await f.get('/favicon.ico')).status, 404, 'could never be')
  })

  it('answers 503 when the storage cannot be read for now', async () => {
    await using f = await makeServer({}, (storage) => ({
      find: (...args) => storage.find(...args),
      look: (...args) => storage.look(...args),
      open: () => Promise.reject(Object.assign(new Error('EMFILE: too many open files'), { code: 'EMFILE' })),
    }))
    const { artifact } = await f.store('one')
    const { status, headers, body } = await f.get(`/${artifact.path}`)
    assert.deepEqual([status, headers['retry-after']], [503, '5'])
    assert.ok(!body.includes('EMFILE'))
    assert.deepEqual(f.damaged, [])
  })

  for (const [what, change] of Object.entries({
    overwritten: async (file: string) => {
      const handle = await open(file, 'r+')
      await handle.write(Buffer.alloc(100, 'x'), 0, 100, 7_900_000)
      await handle.close()
    },
    cut: (file: string) => truncate(file, 5_000_000),
    'appended to': (file: string) => appendFile(file, 'X'),
  })) {
    it(`never completes an answer with a file that is ${what} while it is sent`, async () => {
      await using f = await makeServer(fromDisk)
      const artifact = await storeLarge(f)
      const sent = request(f.server.url, { path: `/${artifact.path}` }).end()
      const [response] = await once(sent, 'response')
      response.pause()
      await delay(50)
      await change(join(f.root, artifact.path))
      await assert.rejects(
        async () => {
          for await (const chunk of response) assert.ok(chunk)
        },
        { code: 'ECONNRESET' },
      )
      await eventually(() => f.damaged.length > 0)
      assert.deepEqual(f.damaged, [artifact.path])
    })
  }

  it('answers 503 when a file changes before its first byte is sent', async () => {
    let stale = true
    await using f = await makeServer(fromDisk, (storage) => ({
      find: (...args) => storage.find(...args),
      look: (...args) => storage.look(...args),
      open: async (path) => {
        const opened = await storage.open(path)
        return stale && typeof opened === 'object' ? { ...opened, stat: { ...opened.stat, mtimeNs: 0n } } : opened
      },
    }))
    const { artifact } = await f.store('one')
    const { status, headers } = await f.get(`/${artifact.path}`)
    assert.deepEqual([status, headers['retry-after'], headers.etag], [503, '5', undefined])
    assert.deepEqual(f.damaged, [artifact.path])
    stale = false
    assert.equal((await f.get(`/${artifact.path}`)).status, 200)
  })

  it('goes on with a download whose file is removed, or gets another name', async () => {
    await using f = await makeServer(fromDisk)
    const artifact = await storeLarge(f)
    const expected = await bytesOf(f, artifact.path)
    const sent = request(f.server.url, { path: `/${artifact.path}` }).end()
    const [response] = await once(sent, 'response')
    response.pause()
    await storeLarge(f, 'gitrepository/x/y')
    await rm(join(f.root, artifact.path))
    const chunks: Buffer[] = []
    for await (const chunk of response) chunks.push(chunk)
    assert.ok(Buffer.concat(chunks).equals(expected))
  })

  it('closes its files when clients go away', async () => {
    await using f = await makeServer(fromDisk)
    const artifact = await storeLarge(f)
    const before = await openFiles()
    for (let i = 0; i < 20; i++) {
      const sent = request(f.server.url, { path: `/${artifact.path}` }).end()
      const [response] = await once(sent, 'response')
      response.destroy()
    }
    await eventually(async () => (await openFiles()) <= before)
  })
})
