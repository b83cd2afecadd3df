import assert from 'node:assert/strict'
import { type FileHandle, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import { artifactOf, serve, sha256, tarOf, type Member } from '../../consumer-sdk/test-support.ts'
import { defaultArchiveLimits, type ArchiveLimits } from '../artifact/archive/archive-plan.ts'
import { folder, makeStorage, type StorageFixture } from '../artifact/storage/test-storage.ts'
import { Temps } from '../artifact/storage/temps.ts'
import { entriesOf, makeTempFolder } from '../artifact/test-support.ts'
import type { Artifact } from '../artifact/types.ts'
import type { Entry } from '../artifact/entry.ts'
import { openArtifactFiles } from './artifact-files.ts'

const own = 'http://own.example/'

describe('the files of an Artifact', () => {
  let f: StorageFixture
  let temps: Temps
  let tempFolder: Awaited<ReturnType<typeof makeTempFolder>>

  beforeEach(async () => {
    f = await makeStorage()
    tempFolder = await makeTempFolder()
    temps = new Temps(join(tempFolder.path, 'tmp'))
  })
  afterEach(async () => {
    await f[Symbol.asyncDispose]()
    await tempFolder[Symbol.asyncDispose]()
  })

  const open = (artifact: Artifact, limits: Partial<ArchiveLimits> = {}, signal = new AbortController().signal) => {
    const pathOf = (url: string) => (url.startsWith(own) ? url.slice(own.length) : undefined)
    const options = { storage: f.storage, pathOf, limits: { ...defaultArchiveLimits, ...limits }, temps }
    return openArtifactFiles(artifact, options, signal)
  }
  const contentOf = async (entry: Entry | undefined) => {
    const body = await entry!.open()
    return Buffer.isBuffer(body) ? body : buffer(body)
  }
  async function served<R>(body: Buffer, use: (artifact: Artifact, requests: () => number) => Promise<R>): Promise<R> {
    const server = await serve((_, res) => res.end(body))
    try {
      const spec = { url: `${server.url}/a.tar.gz`, digest: sha256(body), size: body.length }
      return await use(artifactOf('a', [], spec), () => server.requests)
    } finally {
      await server.stop()
    }
  }

  it('are read from our own storage where they lie there, in any order and size', async () => {
    const large = Buffer.alloc(1_000_000, 'large')
    const files = { 'a.txt': 'a', 'dir/run.sh': 'run', empty: '', large }
    const { artifact } = await f.storage.store(folder, 'r', entriesOf(files), { fileName: 'x' })
    const { digest } = artifact
    const opened = await open(artifactOf('a', [], { url: own + artifact.path, digest }))
    const entries = [...opened.entries].reverse()
    for (const entry of entries)
      assert.deepEqual(await contentOf(entry), Buffer.from(files[entry.path as keyof typeof files]), entry.path)
    assert.deepEqual(
      opened.entries.map(({ path, mode, sizeBytes, contentId }) => [path, mode, sizeBytes, contentId]),
      [
        ['a.txt', 0o600, 1, `artifact:${digest}:a.txt`],
        ['dir/run.sh', 0o700, 3, `artifact:${digest}:dir/run.sh`],
        ['empty', 0o600, 0, `artifact:${digest}:empty`],
        ['large', 0o600, 1_000_000, `artifact:${digest}:large`],
      ],
    )
    // Nothing to clean up after a crash.
    assert.deepEqual(await readdir(temps.folder), [])
    await opened.close()
    await assert.rejects(entries[0]!.open().then((body) => (Buffer.isBuffer(body) ? body : buffer(body))))
  })

  it('are downloaded and verified where somebody else serves them, or our own are damaged', async () => {
    const body = gzipSync(tarOf({ path: 'a/', type: 'Directory' }, { path: 'a/b', content: 'b' }))
    await served(body, async (artifact, requests) => {
      const opened = await open(artifact)
      assert.deepEqual(
        opened.entries.map(({ path }) => path),
        ['a/b'],
      )
      assert.equal((await contentOf(opened.entries[0])).toString(), 'b')
      await opened.close()
      assert.equal(requests(), 1)
      assert.deepEqual(await readdir(temps.folder), [])
      const forged = { ...artifact, spec: { ...artifact.spec!, digest: sha256(Buffer.from('other')) } }
      await assert.rejects(open(forged), { reason: 'DigestMismatch' })
      assert.deepEqual(await readdir(temps.folder), [])
    })
  })

  it('are not taken from a stored file that another digest is asked of', async () => {
    const { artifact } = await f.store('one')
    const other = artifactOf('a', [], { url: own + artifact.path, digest: sha256(Buffer.from('other')) })
    await assert.rejects(open(other, {}, AbortSignal.timeout(500)))
  })

  const manyX = 'x'.repeat(2_000)
  const file = (path: string, content = 'x'): Member => ({ path, content })
  for (const [what, members, limits, why] of [
    ['a path that leads out', [file('../x')], {}, /component "\.\."/],
    ['an absolute path', [file('/x')], {}, /absolute/],
    ['a device', [{ path: 'x', type: 'CharacterDevice' }], {}, /neither file nor folder/],
    ['a hard link', [file('y'), { path: 'x', type: 'Link', linkpath: 'y' }], {}, /neither file nor folder/],
    ['too many entries', [file('a'), file('b'), file('c')], { maxEntries: 2 }, /more than 2 entries/],
    ['too much in a file', [file('a', 'xxx')], { maxFileBytes: 2 }, /a file of more than 2 bytes/],
    ['too much in all files', [file('a', manyX), file('b', manyX)], { maxBytes: 3_000 }, /more than 3000 bytes/],
    ['a length that is a lie', [{ ...file('a'), size: 5_000 }], {}, /cut short/],
  ] as [string, Member[], Partial<ArchiveLimits>, RegExp][]) {
    it(`are refused with ${what}`, async () => {
      await served(gzipSync(tarOf(...members)), async (artifact) => {
        await assert.rejects(open(artifact, limits), { reason: 'ArchiveInvalid', message: why })
        assert.deepEqual(await readdir(temps.folder), [])
      })
    })
  }

  it('are refused with bytes that unpack to more than they may', async () => {
    const bomb = gzipSync(Buffer.alloc(20_000_000))
    await served(bomb, async (artifact) => {
      await assert.rejects(open(artifact, { maxBytes: 100_000, maxEntries: 1 }), { reason: 'ArchiveInvalid' })
    })
  })

  it('leave no file open where the place for them is lost', async () => {
    const { artifact } = await f.store('one')
    const writers: FileHandle[] = []
    const create = temps.create.bind(temps)
    temps.create = async () => {
      const temp = await create()
      writers.push(temp.handle)
      await rm(temp.path)
      return temp
    }
    await assert.rejects(open(artifactOf('a', [], { url: own + artifact.path, digest: artifact.digest })), {
      code: 'ENOENT',
    })
    assert.deepEqual(
      writers.map(({ fd }) => fd),
      [-1],
    )
  })

  it('come without symbolic links', async () => {
    const body = gzipSync(tarOf({ path: 'link', type: 'SymbolicLink', linkpath: '/etc' }, file('a')))
    await served(body, async (artifact) => {
      const opened = await open(artifact)
      assert.deepEqual(
        opened.entries.map(({ path }) => path),
        ['a'],
      )
      await opened.close()
    })
  })

  it('wait for an Artifact that says nothing to verify them by', async () => {
    const { digest: _, ...spec } = artifactOf('a', []).spec!
    await assert.rejects(open({ metadata: { name: 'a' }, spec }), { name: 'WaitingError', reason: 'ArtifactInvalid' })
  })
})
