import assert from 'node:assert/strict'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { gzipSync } from 'node:zlib'
import { extractArchive } from './extract.ts'
import { gunzip } from './gunzip.ts'

describe('a gzip file', () => {
  const { signal } = new AbortController()
  const packed = gzipSync(Buffer.alloc(1_000_000, 'x'))
  let opened: Readable[]

  beforeEach(() => {
    opened = []
  })

  const unpacked = (sizeBytes = packed.length) =>
    gunzip(
      {
        open: () => (opened[opened.length] = Readable.from([packed], { objectMode: false })),
        sizeBytes,
        maxUnpackedBytes: 2_000_000,
        tooLarge: () => new Error('too large'),
      },
      signal,
    )

  it('is opened when the first byte is asked for, and closed by whoever stops early', async () => {
    await unpacked().return()
    assert.equal(opened.length, 0)
    const bytes = unpacked()
    await bytes.next()
    await bytes.return()
    assert.deepEqual(
      opened.map(({ destroyed }) => destroyed),
      [true],
    )
  })

  it('that is gone fails whoever wants it extracted, and nobody else', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'openflux-gunzip-'))
    try {
      const limits = { maxBytes: 1000, maxEntries: 10 }
      const extraction = extractArchive(join(folder, 'gone.tar.gz'), join(folder, 'target'), limits, {}, signal)
      await assert.rejects(extraction, { reason: 'ExtractionFailed', message: /ENOENT/ })
      // An error that nobody listens for has come by now, and ends the test.
      assert.deepEqual(await readdir(folder), [])
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})
