import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeHasher } from '../controllers/artifact/digest.ts'
import { ReconcileError, StalledError, WaitingError } from '../controllers/runtime/errors.ts'
import { downloadArtifact, type FetchLimits } from './fetch.ts'
import { serve, sha256, type TestServer } from './test-support.ts'

const bytes = Buffer.from('the right bytes '.repeat(5000))
const digest = sha256(bytes)
const size = bytes.length
const limits: FetchLimits = { retries: 3, minDelayMs: 1, maxDelayMs: 50, timeoutMs: 60_000, maxBytes: 1_000_000 }

describe('download of an artifact', function () {
  this.timeout(20_000)
  let folder: string
  let file: string
  let server: TestServer | undefined

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'openflux-fetch-'))
    file = join(folder, 'artifact.tar.gz')
  })
  afterEach(async () => {
    await server?.stop()
    server = undefined
    await rm(folder, { recursive: true })
  })

  /** Answers with the right bytes after `answers` have been used up. */
  async function start(...answers: Answer[]): Promise<string> {
    server = await serve((_, res, count) => {
      const answer = answers[count - 1]
      if (answer) answer(res)
      else res.end(bytes)
    })
    return `${server.url}/a.tar.gz`
  }
  const get = (url: string, own: Partial<FetchLimits> = {}, artifact: { digest?: string; size?: number } = { size }) =>
    downloadArtifact({ url, digest, ...artifact }, file, { ...limits, ...own }, new AbortController().signal)

  const recovered: [string, Answer[]][] = [
    ['404', [status(404)]],
    ['503 with Retry-After', [status(503, { 'retry-after': '0' })]],
    ['several 500', [status(500), status(502), status(500)]],
    ['a connection that is reset', [(res) => res.socket?.resetAndDestroy()]],
    [
      'a body that is cut short',
      [(res) => res.writeHead(200, { 'content-length': size }).write(bytes.subarray(0, 999), () => res.destroy())],
    ],
    ['chunks that never end properly', [(res) => res.write(bytes.subarray(0, 999), () => res.destroy())]],
    ['wrong bytes of the right size', [(res) => res.end(Buffer.alloc(size))]],
    ['a login page', [(res) => res.writeHead(200, { 'content-type': 'text/html' }).end('<html>')]],
    ['more bytes than there should be', [(res) => res.end(Buffer.concat([bytes, bytes]))]],
  ]
  for (const [what, answers] of recovered) {
    it(`gets the bytes after ${what}`, async () => {
      assert.equal(await get(await start(...answers)), size)
      assert.ok((await readFile(file)).equals(bytes)) // no difference shown: it takes minutes to compute
      assert.equal(server?.requests, answers.length + 1)
    })
  }

  for (const algorithm of ['sha384', 'sha512', 'blake3'] as const) {
    it(`checks ${algorithm}`, async () => {
      const hasher = await makeHasher(algorithm)
      hasher.update(bytes)
      const right = hasher.digest()
      const url = await start()
      assert.equal(await get(url, {}, { digest: right }), size)
      await fails(
        get(url, {}, { digest: right.replace(/.$/, (c) => (c === '0' ? '1' : '0')) }),
        'DigestMismatch',
        /doesn't match/,
      )
    })
  }

  it('gives up on wrong bytes after a few tries', async () => {
    const url = await start(...always((res) => res.end(Buffer.alloc(size))))
    await fails(get(url), 'DigestMismatch', /computed digest 'sha256:[0-9a-f]{64}' doesn't match 'sha256:/)
    assert.equal(server?.requests, 3)
  })

  it('waits for an artifact that is not served', async () => {
    const url = await start(...always(status(404)))
    await fails(get(url), 'ArtifactNotServed', /artifact not found at .*\/a\.tar\.gz \(HTTP 404\)/, WaitingError)
  })

  it('tries no more often than it may, nor what no retry can help', async () => {
    await fails(get(await start(...always(status(500)))), 'ArtifactFetchFailed', /HTTP 500/)
    assert.equal(server?.requests, 4)
    await server?.stop()
    await fails(get(await start(...always(status(403)))), 'ArtifactFetchFailed', /HTTP 403/)
    assert.equal(server?.requests, 1)
  })

  it('leaves a long Retry-After to the queue, within bounds', async () => {
    const url = await start(status(503, { 'retry-after': '30' }), status(503, { 'retry-after': '99999999' }))
    assert.equal((await fails(get(url), 'ArtifactFetchFailed', /HTTP 503/)).retryAfterMs, 30_000)
    assert.equal((await fails(get(url), 'ArtifactFetchFailed', /HTTP 503/)).retryAfterMs, 600_000)
  })

  it('says so when nobody listens', async () => {
    const url = await start()
    await server?.stop()
    server = undefined
    await fails(get(url), 'ArtifactFetchFailed', /ECONNREFUSED/)
  })

  it('follows a redirect on the same server', async () => {
    const url = await start((res) => res.writeHead(302, { location: '/elsewhere' }).end())
    assert.equal(await get(url), size)
  })

  const elsewhere: [string, string, RegExp][] = [
    ['to another port', 'http://127.0.0.1:1/x', /redirects to another origin, http:\/\/127\.0\.0\.1:1$/],
    ['to a metadata service', 'http://169.254.169.254/latest', /another origin/],
    ['to a file', 'file:///etc/passwd', /another origin/],
    ['to nowhere', '', /without a usable location/],
  ]
  for (const [what, location, message] of elsewhere) {
    it(`refuses a redirect ${what}`, async () => {
      const url = await start((res) => res.writeHead(301, location ? { location } : {}).end())
      await fails(get(url), 'ArtifactFetchFailed', message)
      assert.equal(server?.requests, 1)
    })
  }

  it('does not run in circles', async () => {
    const url = await start(...always((res) => res.writeHead(307, { location: '/again' }).end()))
    await fails(get(url), 'ArtifactFetchFailed', /more than 3 redirects/)
  })

  it('refuses what is larger than the limit, said or sent', async () => {
    const url = await start()
    await fails(get(url, { maxBytes: size - 1 }), 'ArtifactTooLarge', /--download-max-bytes/, StalledError)
    assert.equal(server?.requests, 0)
    await fails(get(url, { maxBytes: size - 1 }, {}), 'ArtifactTooLarge', /--download-max-bytes/, StalledError)
  })

  it('ends when the time is up, although bytes keep trickling', async () => {
    let trickle: NodeJS.Timeout | undefined
    const url = await start((res) => {
      trickle = setInterval(() => res.write('x'), 5)
      res.on('close', () => clearInterval(trickle))
    })
    await fails(get(url, { timeoutMs: 200 }), 'ArtifactFetchFailed', /not finished within 0\.2s/)
  })

  it('ends at once when the pass is aborted, with the reason of that', async () => {
    const stop = new AbortController()
    const url = await start(() => stop.abort(new Error('shutdown')))
    await assert.rejects(downloadArtifact({ url, digest, size }, file, limits, stop.signal), /^Error: shutdown$/)
  })

  it('shows no query of a url, where pre-signed ones have their secret', async () => {
    const url = await start(...always(status(403)))
    const err = await fails(get(`${url}?signature=hunter2`), 'ArtifactFetchFailed', /403/)
    assert.ok(!err.message.includes('hunter2'))
  })

  it('goes to another host where it is told to, path and query as they are', async () => {
    const asked: (string | undefined)[] = []
    server = await serve((req, res) => {
      asked.push(req.url)
      res.end(bytes)
    })
    await get('http://source-controller.flux-system.svc.cluster.local./git/a.tar.gz?x=1', {
      host: new URL(server.url).host,
    })
    assert.deepEqual(asked, ['/git/a.tar.gz?x=1'])
  })

  it('tells a full disk from a bad server', async () => {
    const url = await start()
    const { signal } = new AbortController()
    const nowhere = join(folder, 'missing', 'file')
    await fails(downloadArtifact({ url, digest, size }, nowhere, limits, signal), 'DownloadFailed', /ENOENT/)
    if (process.platform === 'linux')
      await fails(downloadArtifact({ url, digest, size }, '/dev/full', limits, signal), 'DownloadFailed', /ENOSPC/)
  })
})

type Answer = (res: ServerResponse) => void

function status(code: number, headers: Record<string, string> = {}): Answer {
  return (res) => res.writeHead(code, headers).end('x'.repeat(100_000))
}

function always(answer: Answer): Answer[] {
  return Array.from({ length: 50 }, () => answer)
}

async function fails(
  work: Promise<unknown>,
  reason: string,
  message: RegExp,
  type = ReconcileError,
): Promise<ReconcileError> {
  const err = await work.then(
    () => assert.fail('it succeeded'),
    (thrown: unknown) => thrown,
  )
  assert.ok(err instanceof type, String(err))
  assert.equal(err.reason, reason)
  assert.match(err.message, message)
  return err
}
