import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable, Writable } from 'node:stream'
import { promisify } from 'node:util'
import { gunzipSync } from 'node:zlib'
import { writeArchive, type ArchiveOptions } from './archive.ts'
import type { Entries, Entry } from '../entry.ts'
import { archiveOf, listed } from './test-archive.ts'
import { entriesOf, makeRandom, makeTempFolder } from '../test-support.ts'

const run = promisify(execFile)

const tree = entriesOf({
  'b/c.txt': 'c',
  'a.txt': 'a',
  'b.txt': 'b',
  'b/a/run.sh': '#!/bin/sh\n',
  'b-1/x': 'x',
  'größe/日本語.txt': 'unicode',
  [`long/${'n'.repeat(120)}/${'m'.repeat(200)}`]: 'long',
  '.gitignore': 'dropped',
  'img.png': 'dropped',
  empty: '',
})

async function piecesOf(entry: Entry): Promise<Buffer[]> {
  const body = await entry.open()
  return Buffer.isBuffer(body) ? [...body].map((byte) => Buffer.of(byte)) : []
}

async function* failing(): AsyncGenerator<Buffer> {
  yield Buffer.alloc(1)
  throw new Error('disk on fire')
}

function zeros(size: number, announced: number, asStream: boolean): Entry[] {
  const body = Buffer.alloc(size)
  return [{ path: 'a', mode: 0o644, sizeBytes: announced, open: async () => (asStream ? Readable.from([body]) : body) }]
}

function shuffled<T>(items: T[], seed: number): T[] {
  const random = makeRandom(seed)
  return items
    .map((item) => ({ item, at: random(2 ** 31) }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ item }) => item)
}

const rejects = (entries: Entries, message: RegExp, options?: ArchiveOptions): Promise<void> =>
  assert.rejects(archiveOf(entries, options), { reason: 'ArchiveOperationFailed', message })

describe('archive', function () {
  this.timeout(60_000)

  it('lists folders before their content, depth first, by bytes of the component', async () => {
    const { bytes, result } = await archiveOf(tree)
    assert.deepEqual(
      (await listed(bytes)).map(({ path, type, mode }) => [path, type, mode]),
      [
        ['a.txt', 'File', 0o600],
        ['b', 'Directory', 0o750],
        ['b/a', 'Directory', 0o750],
        ['b/a/run.sh', 'File', 0o700],
        ['b/c.txt', 'File', 0o600],
        ['b-1', 'Directory', 0o750],
        ['b-1/x', 'File', 0o600],
        ['b.txt', 'File', 0o600],
        ['empty', 'File', 0o600],
        ['größe', 'Directory', 0o750],
        ['größe/日本語.txt', 'File', 0o600],
        ['long', 'Directory', 0o750],
        [`long/${'n'.repeat(120)}`, 'Directory', 0o750],
        [`long/${'n'.repeat(120)}/${'m'.repeat(200)}`, 'File', 0o600],
      ],
    )
    assert.deepEqual([result.files, result.ignored], [8, 2])
    assert.equal(result.sizeBytes, bytes.length)
    assert.equal(result.digest, `sha256:${createHash('sha256').update(bytes).digest('hex')}`)
  })

  it('holds neither owner nor time', async () => {
    for (const entry of await listed((await archiveOf(tree)).bytes)) {
      assert.deepEqual([entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime?.getTime()], [0, 0, '', '', 0])
    }
  })

  it('orders names as UTF-8 bytes do, where UTF-16 does otherwise', async () => {
    const entries = await listed((await archiveOf(entriesOf({ '\u{1f600}': '', '\uff5e': '', z: '' }))).bytes)
    assert.deepEqual(
      entries.map(({ path }) => path),
      ['z', '\uff5e', '\u{1f600}'],
    )
  })

  it('is accepted by GNU tar and gzip, and gives the same content back', async () => {
    await using folder = await makeTempFolder()
    const file = join(folder.path, 'a.tar.gz')
    await writeArchive(tree, createWriteStream(file))
    await run('gzip', ['-t', file])
    const { stdout } = await run('tar', ['tzf', file, '--quoting-style=literal', '--show-transformed-names'], {
      env: { LC_ALL: 'C.UTF-8', PATH: process.env.PATH },
    })
    assert.equal(stdout.split('\n').length - 1, 14)
    await run('tar', ['xzf', file, '-C', folder.path])
    assert.equal(await readFile(join(folder.path, 'größe/日本語.txt'), 'utf8'), 'unicode')
    assert.equal(await readFile(join(folder.path, `long/${'n'.repeat(120)}/${'m'.repeat(200)}`), 'utf8'), 'long')
    assert.equal((await stat(join(folder.path, 'b/a/run.sh'))).mode & 0o777, 0o700)
  })

  it('has no time in the gzip header', async () => {
    assert.equal((await archiveOf(tree)).bytes.readUInt32LE(4), 0)
  })

  it('is the same whatever the order, the exact mode and the pieces of the bodies', async () => {
    const expected = (await archiveOf(tree)).result.digest
    for (let seed = 1; seed <= 20; seed++) {
      const other = shuffled(tree, seed).map((entry): Entry => ({
        ...entry,
        mode: entry.mode & 0o100 ? 0o104_711 : 0o100_444,
        open: async () => Readable.from(await piecesOf(entry), { objectMode: false }),
      }))
      assert.equal((await archiveOf(other)).result.digest, expected, `seed ${seed}`)
    }
  })

  it('is the same for large files whatever their pieces', async () => {
    const content = Buffer.alloc(3_000_000, 'some text that is not quite regular 0123456789')
    for (let at = 0; at < content.length; at += 977) content[at] = at % 251
    const digests = [1, 1000, 65_536, 3_000_000].map(async (size) => {
      const pieces = Array.from({ length: Math.ceil(content.length / Math.max(size, 500)) }, (_, i) =>
        content.subarray(i * Math.max(size, 500), (i + 1) * Math.max(size, 500)),
      )
      const entry = { path: 'large', mode: 0o644, sizeBytes: content.length, open: async () => Readable.from(pieces) }
      return (await archiveOf([entry])).result.digest
    })
    assert.equal(new Set(await Promise.all(digests)).size, 1)
  })

  it('is the same on any machine as far as we can make one: time zone, locale, umask', async () => {
    const script = `
      import { writeArchive } from ${JSON.stringify(join(import.meta.dirname, 'archive.ts'))}
      import { Writable } from 'node:stream'
      process.umask(Number(process.env.UMASK))
      const names = ['ä', 'z', 'Z', 'a', 'i', 'I', 'ı', 'é/x', 'e/x']
      const entries = names.map((path) => ({ path, mode: 0o644, sizeBytes: 1, open: async () => Buffer.from('x') }))
      const sink = new Writable({ write: (chunk, encoding, done) => done() })
      console.log((await writeArchive(entries, sink)).digest)`
    const settings = [
      { TZ: 'UTC', LC_ALL: 'C', UMASK: '0' },
      { TZ: 'Asia/Kathmandu', LC_ALL: 'tr_TR.UTF-8', UMASK: '63' },
      { TZ: 'America/St_Johns', LC_ALL: 'de_DE.UTF-8', UMASK: '511' },
    ]
    const outputs = settings.map(async (env) => {
      const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script], {
        env: { ...process.env, ...env },
      })
      return stdout.trim()
    })
    const digests = await Promise.all(outputs)
    assert.match(digests[0]!, /^sha256:[0-9a-f]{64}$/)
    assert.equal(new Set(digests).size, 1)
  })

  it('is a valid, empty archive of no entries', async () => {
    const { bytes, result } = await archiveOf([])
    assert.deepEqual([result.files, result.contentBytes], [0, 0])
    assert.deepEqual(gunzipSync(bytes), Buffer.alloc(1024))
  })

  it('obeys every .sourceignore, keeps it, and opens each body once', async () => {
    const opened: string[] = []
    const entries = entriesOf({
      '.sourceignore': '*.md\n!/docs/a.md',
      'a.md': '',
      'docs/a.md': '',
      'sub/.sourceignore': 'x\n',
      'sub/x': '',
      'sub/y.jpg': '',
    })
    const counted = entries.map((entry) => ({ ...entry, open: () => (opened.push(entry.path), entry.open()) }))
    const { bytes } = await archiveOf(counted, { ignore: '# nothing' })
    const paths = (await listed(bytes)).filter(({ type }) => type === 'File').map(({ path }) => path)
    assert.deepEqual(paths, ['.sourceignore', 'docs/a.md', 'sub/.sourceignore', 'sub/y.jpg'])
    assert.deepEqual(opened.toSorted(), paths)
  })

  it('applies spec.ignore', async () => {
    const { bytes } = await archiveOf(entriesOf({ 'a/x': '', 'b/x': '' }), { ignore: '/*\n!/b' })
    assert.deepEqual(
      (await listed(bytes)).map(({ path }) => path),
      ['b', 'b/x'],
    )
  })

  it('uses the digest algorithm that it is told', async () => {
    assert.match((await archiveOf(tree, { digestAlgorithm: 'blake3' })).result.digest, /^blake3:[0-9a-f]{64}$/)
    assert.match((await archiveOf(tree, { digestAlgorithm: 'sha512' })).result.digest, /^sha512:[0-9a-f]{128}$/)
  })

  it('refuses hostile paths before it opens anything, ignored or not', async () => {
    for (const path of ['../x', '.git/config', '/etc/passwd', 'a/../../b', 'x.png/../..', 'a\\b']) {
      const hostile = { path, mode: 0o644, sizeBytes: 0, open: () => Promise.reject(new Error('opened')) }
      await rejects([hostile, ...tree], /^invalid path ".*": it /, { ignore: '*' })
    }
  })

  it('refuses duplicates, and a file that is a folder too', async () => {
    const twice = [...entriesOf({ 'a/b': '1', 'a.b': '' }), ...entriesOf({ 'a/b': '2' })]
    await rejects(twice, /^duplicate path "a\/b"$/)
    await rejects(entriesOf({ a: '', 'a/b/c': '' }), /^"a" is both a file and a folder$/)
    await rejects(
      entriesOf({ 'x/a': '', 'x/a.b': '', 'x/a-b': '', 'x/a/c': '' }),
      /^"x\/a" is both a file and a folder$/,
    )
  })

  it('keeps names that only some file systems take for the same', async () => {
    const { result } = await archiveOf(entriesOf({ A: '', a: '', é: '', 'e\u0301': '', ß: '', ss: '' }))
    assert.equal(result.files, 6)
  })

  it('names the flag of a limit that is passed', async () => {
    await rejects(entriesOf({ a: '', b: '', c: '' }), /more than 2 files .*--artifact-max-entries/, {
      limits: { maxEntries: 2 },
    })
    await rejects(entriesOf({ a: 'xxx', b: 'xxx' }), /more than 5 bytes .*--artifact-max-size/, {
      limits: { maxBytes: 5 },
    })
    await rejects(entriesOf({ a: 'xxx' }), /a file of more than 2 bytes, "a" .*--artifact-max-file-size/, {
      limits: { maxFileBytes: 2 },
    })
  })

  it('counts no bytes of what is ignored', async () => {
    await archiveOf(entriesOf({ 'a.zip': 'xxxxxxxxx', b: 'x' }), { limits: { maxBytes: 5, maxFileBytes: 5 } })
  })

  it('stops to read a source that offers files without end', async () => {
    let offered = 0
    async function* endless(): AsyncGenerator<Entry> {
      for (;;) yield { ...tree[0]!, path: `f${offered++}` }
    }
    await rejects(endless(), /more than 1000 files/, { limits: { maxEntries: 1000 } })
    assert.equal(offered, 1001)
  })

  for (const [name, size] of Object.entries({ small: 10, large: 3_000_000 })) {
    it(`refuses a ${name} body that is longer or shorter than announced`, async () => {
      for (const asStream of [true, false]) {
        await rejects(zeros(size, size - 1, asStream), /^"a" has more than the announced \d+ bytes$/)
        await rejects(zeros(size, size + 1, asStream), /^"a" has \d+ of the announced \d+ bytes$/)
      }
    })

    it(`fails when a ${name} body fails, naming the file`, async () => {
      await rejects(
        [{ path: 'a', mode: 0, sizeBytes: size, open: async () => Readable.from(failing()) }],
        /^failed to read "a": disk on fire$/,
      )
      await rejects(
        [{ path: 'a', mode: 0, sizeBytes: size, open: () => Promise.reject(new Error('no such blob')) }],
        /^failed to read "a": no such blob$/,
      )
    })
  }

  it('refuses ignore files that are too large', async () => {
    await rejects(
      entriesOf({ 'a/.sourceignore': 'x'.repeat(1024 * 1024 + 1) }),
      /the .sourceignore files have more than 1048576 bytes together/,
    )
  })

  it('asks for small bodies ahead of time, within its limits, and in order', async () => {
    const opened: number[] = []
    const releases: (() => void)[] = []
    const sizes = [
      ...Array.from({ length: 600 }, () => 10),
      ...Array.from({ length: 10 }, () => 1_000_000),
      2_000_000,
      5,
      5,
    ]
    const entries = sizes.map((sizeBytes, i): Entry => ({
      path: `f${String(i).padStart(3, '0')}`,
      mode: 0o644,
      sizeBytes,
      open: async () => {
        opened.push(i)
        await new Promise<void>((resolve) => releases.push(resolve))
        return Buffer.alloc(sizeBytes)
      },
    }))
    const done = archiveOf(entries)
    const waits: number[] = []
    for (let next = 0; next < sizes.length; next++) {
      while (releases.length <= next) await new Promise((resolve) => setImmediate(resolve))
      await new Promise((resolve) => setTimeout(resolve, 2))
      waits.push(opened.length - next)
      releases[next]!()
    }
    await done
    assert.deepEqual(
      opened,
      sizes.map((_, i) => i),
    )
    assert.equal(waits[0], 512)
    assert.equal(Math.max(...waits), 512)
    assert.equal(waits[600], 4, 'four megabytes ahead')
    assert.equal(waits[610], 1, 'nothing beside a large one')
  })

  it('ends with the reason of the signal while a source or a body hangs', async () => {
    const never = new Promise<never>(() => {})
    const hanging: Record<string, Entries> = {
      listing: { [Symbol.asyncIterator]: () => ({ next: () => never }) },
      open: [{ path: 'a', mode: 0, sizeBytes: 1, open: () => never }],
      'large open': [{ path: 'a', mode: 0, sizeBytes: 3_000_000, open: () => never }],
      stream: [{ path: 'a', mode: 0, sizeBytes: 1, open: async () => new Readable({ read() {} }) }],
      'large stream': [{ path: 'a', mode: 0, sizeBytes: 3_000_000, open: async () => new Readable({ read() {} }) }],
    }
    for (const [name, entries] of Object.entries(hanging)) {
      const aborter = new AbortController()
      const reason = new Error(`timeout of ${name}`)
      setTimeout(() => aborter.abort(reason), 20)
      await assert.rejects(archiveOf(entries, { signal: aborter.signal }), reason)
    }
  })

  it('passes on what the destination throws, and stops reading', async () => {
    let opened = 0
    const entries = Array.from({ length: 2000 }, (_, i): Entry => ({
      path: `f${i}`,
      mode: 0o644,
      sizeBytes: 100_000,
      open: async () => (opened++, Buffer.from(makeRandomBytes(100_000, i))),
    }))
    const full = new Writable({ write: (_chunk, _encoding, done) => done(new Error('disk full')) })
    await assert.rejects(writeArchive(entries, full), { message: 'disk full' })
    assert.ok(opened < 1000, `${opened} bodies opened`)
  })
})

function makeRandomBytes(length: number, seed: number): Buffer {
  const random = makeRandom(seed)
  return Buffer.from(Array.from({ length }, () => random(256)))
}
