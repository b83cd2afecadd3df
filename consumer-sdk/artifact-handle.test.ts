import assert from 'node:assert/strict'
import { access, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { eventually } from '../controllers/runtime/eventually.ts'
import { type HandleOptions, withArtifact } from './artifact-handle.ts'
import type { ResolvedArtifact } from './resolve.ts'
import { serve, sha256, tarOf, type TestServer } from './test-support.ts'

const bytes = gzipSync(tarOf({ path: 'a.txt', content: 'a' }))
const options: HandleOptions = {
  fetch: { retries: 0, timeoutMs: 60_000, maxBytes: 1_000_000 },
  extract: { maxBytes: 1_000_000, maxEntries: 10 },
}

describe('artifact handle', function () {
  this.timeout(20_000)
  let server: TestServer
  let folder: string
  let artifact: ResolvedArtifact
  const { signal } = new AbortController()

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'openflux-handle-'))
    server = await serve((req, res) => (req.url === '/hang' ? res.write('x') : res.end(bytes)))
    artifact = {
      namespace: 'apps',
      name: 'app',
      revision: 'v1',
      digest: sha256(bytes),
      url: `${server.url}/a.tar.gz`,
      lastUpdateTime: '2026-01-02T03:04:05Z',
      metadata: {},
    }
  })
  afterEach(async () => {
    await server.stop()
    await rm(folder, { recursive: true })
  })

  it('downloads once, when it is asked to, and removes the file at the end', async () => {
    const file = await withArtifact(artifact, options, signal, async (handle) => {
      assert.equal(server.requests, 0)
      const path = await handle.download()
      assert.ok((await readFile(path)).equals(bytes))
      assert.equal((await handle.extractTo(join(folder, 'one'))).files, 1)
      assert.equal((await handle.extractTo(join(folder, 'two'))).files, 1)
      return path
    })
    assert.equal(server.requests, 1)
    await assert.rejects(access(file), /ENOENT/)
    assert.equal(await readFile(join(folder, 'two', 'a.txt'), 'utf8'), 'a')
  })

  it('downloads nothing where nobody asks', async () => {
    assert.equal(await withArtifact(artifact, options, signal, async (handle) => handle.revision), 'v1')
    assert.equal(server.requests, 0)
  })

  it('removes the file after a failure as well', async () => {
    let file = ''
    const work = withArtifact(artifact, options, signal, async (handle) => {
      file = await handle.download()
      throw new Error('build failed')
    })
    await assert.rejects(work, /^Error: build failed$/)
    await assert.rejects(access(file), /ENOENT/)
  })

  it('ends a download that nobody waits for any more', async () => {
    let forgotten: Promise<unknown> = Promise.resolve()
    artifact = { ...artifact, url: `${server.url}/hang` }
    await withArtifact(artifact, options, signal, async (handle) => {
      forgotten = handle.extractTo(join(folder, 'never')).catch(String)
      await eventually(() => server.requests === 1)
    })
    assert.equal(await forgotten, 'Error: the pass has ended')
  })
})
