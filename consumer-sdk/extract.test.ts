import assert from 'node:assert/strict'
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { archiveOf, linkEntry } from '../controllers/artifact/archive/test-archive.ts'
import { entriesOf, makeRandom } from '../controllers/artifact/test-support.ts'
import { ReconcileError, StalledError } from '../controllers/runtime/errors.ts'
import { extractArchive, type ExtractLimits, type ExtractOptions } from './extract.ts'
import { gzipMembers, type Member, paxHeader, paxRecord, tarMember, tarOf } from './test-support.ts'

const limits: ExtractLimits = { maxBytes: 10_000_000, maxEntries: 1000 }
const good: Member = { path: 'good.txt', content: 'good' }

describe('extraction', function () {
  this.timeout(20_000)
  let root: string
  let target: string

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'openflux-extract-'))
    target = join(root, 'in', 'target')
  })
  afterEach(() => rm(root, { recursive: true }))

  async function extract(archive: Buffer, options: ExtractOptions = {}, own: Partial<ExtractLimits> = {}) {
    const file = join(root, 'artifact.tar.gz')
    await writeFile(file, archive)
    return extractArchive(file, target, { ...limits, ...own }, options, new AbortController().signal)
  }
  const read = (path: string) => readFile(join(target, path), 'utf8')

  /** Everything below `root` but the archive itself, as `path -> kind`. */
  async function everything(): Promise<string[]> {
    const entries = await readdir(root, { recursive: true, withFileTypes: true })
    return entries.filter((entry) => entry.isFile() && !entry.name.endsWith('.tar.gz')).map((entry) => entry.name)
  }

  async function refused(
    archive: Buffer,
    reason: string,
    message: RegExp,
    options: ExtractOptions = {},
    own: Partial<ExtractLimits> = {},
  ): Promise<void> {
    const err = await extract(archive, options, own).then(
      () => assert.fail('it was extracted'),
      (thrown: unknown) => thrown,
    )
    assert.ok(err instanceof StalledError, String(err))
    assert.equal(err.reason, reason)
    assert.match(err.message, message)
    assert.deepEqual(await everything(), [], 'something was left behind')
  }

  it('gives the files, with folders listed or not, and counts them', async () => {
    const archive = tarOf(
      { path: './', type: 'Directory' },
      good,
      { path: './a/b/', type: 'Directory' },
      { path: 'a/b/deep.txt', content: 'deep' },
      { path: 'c/unlisted.txt', content: '' },
      { path: 'c/', type: 'Directory' },
    )
    assert.deepEqual(await extract(gzipSync(archive)), { files: 3, folders: 3, bytes: 8, skippedLinks: 0 })
    assert.equal(await read('a/b/deep.txt'), 'deep')
    assert.equal(await read('good.txt'), 'good')
    assert.equal(await read('c/unlisted.txt'), '')
    assert.deepEqual(await readdir(join(root, 'in')), ['target'])
  })

  it('clamps modes: no setuid, nothing for others, executable stays executable', async () => {
    await extract(
      gzipSync(
        tarOf({ path: 'x', mode: 0o6755 }, { path: 'y', mode: 0o666 }, { path: 'd/', type: 'Directory', mode: 0o777 }),
      ),
    )
    const modes = ['x', 'y', 'd'].map(async (path) => ((await lstat(join(target, path))).mode & 0o7777).toString(8))
    assert.deepEqual(await Promise.all(modes), ['700', '600', '700'])
  })

  it('gives back what our own archive was made of, whatever the names', async () => {
    const files: Record<string, string> = { 'run.sh': '#!/bin/sh', 'empty.txt': '', 'a/b/c.txt': 'x'.repeat(100_000) }
    for (const length of [50, 99, 100, 101, 155, 156, 240, 255]) {
      files[`${'n'.repeat(length - 4)}.txt`] = `name of ${length}`
      files[`${'f'.repeat(length)}/${'é'.repeat(Math.floor(length / 2))}`] = `folder of ${length}`
    }
    const { bytes } = await archiveOf(entriesOf(files))
    assert.equal((await extract(bytes)).files, Object.keys(files).length)
    for (const [path, content] of Object.entries(files)) assert.ok((await read(path)) === content, path)
    assert.equal((await lstat(join(target, 'run.sh'))).mode & 0o777, 0o700)
  })

  it('takes a gzip of many members', async () => {
    const content = 'line of a file\n'.repeat(10_000)
    const archive = gzipMembers(tarOf(good, { path: 'big.txt', content }, { path: 'last.txt', content: 'last' }))
    assert.equal((await extract(archive)).files, 3)
    assert.ok((await read('big.txt')) === content)
    assert.equal(await read('last.txt'), 'last')
  })

  it('takes the members that our own archives are made of, and skips the links in them', async () => {
    const files: Record<string, string> = { 'large.bin': 'text that repeats '.repeat(100_000) }
    for (let i = 0; i < 60; i++) files[`apps/${i % 7}/${i}.yaml`] = `line ${i}\n`.repeat(i * 50)
    const links = ['apps/a', `apps/0/${'l'.repeat(120)}`].map((path) => linkEntry(path, '../apps/1/1.yaml'))
    const { bytes, result } = await archiveOf([...entriesOf(files), ...links], { symlinks: 'keep' })
    assert.equal(result.droppedSymlinks, 1)
    const { files: count, skippedLinks } = await extract(bytes)
    assert.deepEqual([count, skippedLinks], [61, 1])
    for (const [path, content] of Object.entries(files)) assert.ok((await read(path)) === content, path)
    await rm(target, { recursive: true })
    await refused(bytes, 'ArchiveInvalid', /: a symbolic link/, { symlinks: 'refuse' })
    await refused(bytes.subarray(0, -10), 'ArchiveInvalid', /gzip/)
  })

  it('takes long names in the ways of pax, ustar and GNU tar', async () => {
    const long = `${'folder-'.repeat(20)}/${'é'.repeat(100)}.txt`
    const archive = tarOf(
      paxHeader(paxRecord('path', `pax/${long}`) + paxRecord('comment', 'a=b\nc')),
      { path: 'short', content: 'pax' },
      tarMember({ path: '././@LongLink', type: 'NextFileHasLongPath', content: `gnu/${long}\0` }),
      { path: 'short', content: 'gnu' },
      paxHeader(paxRecord('comment', 'as git writes it'), 'GlobalExtendedHeader'),
      { path: `${'p'.repeat(120)}/${'n'.repeat(90)}`, content: 'ustar' },
    )
    assert.equal((await extract(gzipSync(archive))).files, 3)
    assert.equal(await read(`pax/${long}`), 'pax')
    assert.equal(await read(`gnu/${long}`), 'gnu')
    assert.equal(await read(`${'p'.repeat(120)}/${'n'.repeat(90)}`), 'ustar')
  })

  it('leaves symbolic links out, also as part of a path, or refuses them', async () => {
    const archive = gzipSync(
      tarOf({ path: 'link', type: 'SymbolicLink', linkpath: root }, { path: 'link/file.txt', content: 'x' }, good),
    )
    await refused(archive, 'ArchiveInvalid', /"link": a symbolic link/, { symlinks: 'refuse' })
    assert.equal((await extract(archive)).skippedLinks, 1)
    assert.ok((await lstat(join(target, 'link'))).isDirectory())
    assert.deepEqual((await everything()).toSorted(), ['file.txt', 'good.txt'])
  })

  const hostile: [string, Buffer, RegExp][] = [
    ['a path that climbs out', tarOf(good, { path: '../evil', content: 'x' }), /component "\.\."/],
    ['a path that climbs out of a folder', tarOf({ path: 'a/../../evil', content: 'x' }), /component "\.\."/],
    ['a folder that climbs out', tarOf({ path: '../', type: 'Directory' }), /component "\.\."/],
    ['an absolute path', tarOf({ path: '/tmp/evil', content: 'x' }), /absolute/],
    ['a backslash', tarOf({ path: '..\\evil', content: 'x' }), /backslash/],
    ['a component .', tarOf({ path: 'a/./b', content: 'x' }), /component "\."/],
    ['an empty component', tarOf({ path: 'a//b', content: 'x' }), /component ""/],
    [
      'a hard link',
      tarOf(good, { path: 'hard', type: 'Link', linkpath: 'good.txt' }),
      /"hard": a Link is neither file nor folder/,
    ],
    [
      'a hard link through a skipped symlink',
      tarOf({ path: 's', type: 'SymbolicLink', linkpath: '/etc' }, { path: 'h', type: 'Link', linkpath: 's/passwd' }),
      /a Link is neither/,
    ],
    ['a device', tarOf({ path: 'dev', type: 'CharacterDevice' }), /CharacterDevice/],
    ['a FIFO', tarOf({ path: 'pipe', type: 'FIFO' }), /FIFO/],
    ['a sparse file of GNU tar', tarOf({ path: 'sparse', type: 'SparseFile' }), /SparseFile/],
    ['a sparse file of pax', tarOf(paxHeader(paxRecord('GNU.sparse.major', '1')), good), /sparse/],
    ['a pax path that climbs out', tarOf(paxHeader(paxRecord('path', '../evil')), good), /component "\.\."/],
    ['a pax path with NUL', tarOf(paxHeader(paxRecord('path', 'a\0b')), good), /NUL/],
    [
      'a GNU name that climbs out',
      tarOf(tarMember({ path: 'L', type: 'NextFileHasLongPath', content: '../../evil' }), good),
      /component "\.\."/,
    ],
    [
      'a global pax header that sets a path',
      tarOf(paxHeader(paxRecord('path', 'evil'), 'GlobalExtendedHeader'), good),
      /global extended header/,
    ],
    ['a malformed pax record', tarOf(paxHeader('99 path=x\n'), good), /malformed pax/],
    ['a pax header for nothing', tarOf(good, paxHeader(paxRecord('path', 'x'))), /without a member/],
    ['a pax size that is negative', tarOf(paxHeader(paxRecord('size', '-1')), good), /usable size/],
    ['a pax size that swallows the next member', tarOf(paxHeader(paxRecord('size', '99999')), good), /cut short/],
    [
      'a symbolic link with content',
      tarOf({ path: 's', type: 'SymbolicLink', linkpath: 'x', content: 'x' }),
      /with content/,
    ],
    ['a name twice', tarOf(good, good), /"good\.txt": another one has the same name/],
    [
      'a file, then a folder of its name',
      tarOf(good, { path: 'good.txt/x', content: 'x' }),
      /"good\.txt": another one/,
    ],
    [
      'a folder, then a file of its name',
      tarOf({ path: 'a/x', content: 'x' }, { path: 'a', content: 'x' }),
      /"a": another one/,
    ],
    ['a folder with content', tarOf({ path: 'a/', type: 'Directory', content: 'x' }), /checksum/],
    [
      'a path of 5000 characters',
      tarOf(paxHeader(paxRecord('path', 'a/'.repeat(2500) + 'a')), good),
      /longer than 4096/,
    ],
    ['a name of 300 characters', tarOf(paxHeader(paxRecord('path', 'a'.repeat(300))), good), /longer than 255/],
    ['folders 2000 deep', tarOf(paxHeader(paxRecord('path', 'a/'.repeat(2000) + 'a')), good), /deeper than 100/],
    ['a wrong checksum', Buffer.concat([Buffer.from('x'.repeat(512)), tarOf(good)]), /checksum/],
    ['no end marker', tarMember(good), /end marker is missing/],
    ['half a header', tarOf(good).subarray(0, 300), /cut short/],
    ['a size without content', tarOf({ path: 'a', size: 1e9 }), /cut short/],
    ['a second archive behind the end', Buffer.concat([tarOf(good), tarOf(good)]), /after the end marker/],
    ['a zip in a gzip', gzipSync(tarOf(good)), /checksum|cut short/],
  ]
  for (const [what, archive, message] of hostile)
    it(`refuses ${what}`, () => refused(gzipSync(archive), 'ArchiveInvalid', message))

  const damaged: [string, Buffer][] = [
    ['no gzip', Buffer.from('<html>please log in</html>')],
    ['nothing', Buffer.alloc(0)],
    ['a gzip that is cut', gzipSync(tarOf(good)).subarray(0, -6)],
    ['garbage behind the gzip', Buffer.concat([gzipSync(tarOf(good)), Buffer.from('garbage')])],
    ['zeros behind the gzip', Buffer.concat([gzipSync(tarOf(good)), Buffer.alloc(100)])],
    ['a flipped bit', flipped(gzipSync(tarOf(good)))],
  ]
  for (const [what, archive] of damaged) it(`refuses ${what}`, () => refused(archive, 'ArchiveInvalid', /gzip/))

  it('stops a gzip bomb at the limit, also in the second member', async () => {
    const bomb = gzipSync(Buffer.alloc(60_000_000))
    assert.ok(bomb.length < 100_000)
    const huge = tarMember({ path: 'bomb', size: 300_000_000 })
    await refused(
      Buffer.concat([gzipSync(huge), bomb]),
      'ArchiveTooLarge',
      /more than 10000000 bytes \(--extract-max-bytes\)/,
    )
    await refused(Buffer.concat([gzipSync(tarOf(good)), bomb]), 'ArchiveTooLarge', /--extract-max-bytes/)
  })

  it('stops at too many entries', async () => {
    const many = Array.from({ length: 50 }, (_, i) => ({ path: `f${i}` }))
    await refused(
      gzipSync(tarOf(...many)),
      'ArchiveTooLarge',
      /more than 49 entries \(--extract-max-entries\)/,
      {},
      { maxEntries: 49 },
    )
    assert.equal((await extract(gzipSync(tarOf(...many)), {}, { maxEntries: 50 })).files, 50)
  })

  it('keeps names that differ in case or Unicode form where the file system does, and refuses them on demand', async () => {
    for (const [one, other] of [
      ['README', 'readme'],
      ['stra\u00dfe', 'STRASSE'],
      ['\u00e9', 'e\u0301'],
      ['A/x', 'a/y'],
    ] as const) {
      const archive = gzipSync(tarOf({ path: one, content: '1' }, { path: other, content: '2' }))
      await refused(archive, 'ArchiveInvalid', /differ only in case or Unicode form/, { portableNames: true })
    }
  })

  it('gives one folder of the archive', async () => {
    const archive = gzipSync(
      tarOf(
        { path: 'deploy/', type: 'Directory' },
        { path: 'deploy/a/x', content: 'x' },
        { path: 'deployment', content: 'no' },
        good,
      ),
    )
    assert.deepEqual(await extract(archive, { folder: './deploy/' }), {
      files: 1,
      folders: 1,
      bytes: 1,
      skippedLinks: 0,
    })
    assert.deepEqual(await readdir(target), ['a'])
    await rm(target, { recursive: true })
    await refused(archive, 'FolderNotFound', /no folder "nowhere"/, { folder: 'nowhere' })
    await refused(archive, 'FolderNotFound', /component/, { folder: '../x' })
    await refused(archive, 'ArchiveInvalid', /a file where the folder should be/, { folder: 'good.txt' })
    const climbing = gzipSync(tarOf({ path: 'deploy/x' }, { path: '../evil' }))
    await refused(climbing, 'ArchiveInvalid', /component/, { folder: 'deploy' })
  })

  describe('into a target that exists', () => {
    const archive = gzipSync(tarOf(good))

    it('fills an empty folder, refuses a full one, and replaces it on demand', async () => {
      await mkdir(target, { recursive: true })
      await extract(archive)
      await writeFile(join(target, 'old.txt'), 'old')
      await assert.rejects(extract(archive), failed(/is not empty/))
      assert.deepEqual((await readdir(target)).toSorted(), ['good.txt', 'old.txt'])
      await extract(archive, { replace: true })
      assert.deepEqual(await readdir(target), ['good.txt'])
      assert.deepEqual(await readdir(join(root, 'in')), ['target'])
    })

    it('leaves the old content alone when the new one is refused', async () => {
      await extract(archive)
      await assert.rejects(extract(gzipSync(tarOf(good, { path: '../x' })), { replace: true }), /component/)
      assert.equal(await read('good.txt'), 'good')
      assert.deepEqual(await readdir(join(root, 'in')), ['target'])
    })

    it('never goes through a symbolic link or over a file', async () => {
      await mkdir(join(root, 'in'))
      await mkdir(join(root, 'elsewhere'))
      await symlink(join(root, 'elsewhere'), target)
      await assert.rejects(extract(archive, { replace: true }), failed(/links are not followed/))
      assert.deepEqual(await readdir(join(root, 'elsewhere')), [])
      await rm(target)
      await writeFile(target, 'a file')
      await assert.rejects(extract(archive), failed(/is no folder/))
    })

    it('stays within the target where its parent cannot be written', async function () {
      if (process.getuid?.() === 0) {
        // Root may write everywhere, so a file system of its own has to stand for the read-only parent.
        target = await mkdtemp('/dev/shm/openflux-extract-')
        assert.notEqual((await lstat(target)).dev, (await lstat(root)).dev)
      } else {
        await mkdir(target, { recursive: true })
        await chmod(join(root, 'in'), 0o500)
      }
      try {
        await writeFile(join(target, 'old.txt'), 'old')
        await extract(archive, { replace: true })
        assert.deepEqual(await readdir(target), ['good.txt'])
      } finally {
        await chmod(join(root, 'in'), 0o700).catch(() => undefined) // only there in one of the two cases
        await rm(target, { recursive: true, force: true })
      }
    })
  })

  it('leaves nothing behind when it is aborted', async () => {
    const file = join(root, 'artifact.tar.gz')
    await writeFile(file, gzipSync(tarOf(good, { path: 'big', content: Buffer.alloc(5_000_000) })))
    const stop = new AbortController()
    const work = extractArchive(file, target, limits, {}, stop.signal)
    stop.abort(new Error('shutdown'))
    await assert.rejects(work, /^Error: shutdown$/)
    assert.deepEqual(await everything(), [])
  })
})

describe('extraction of damaged archives', () => {
  it('ends in all or nothing, and never outside the target', async () => {
    const seed = Date.now() % 1_000_000
    const random = makeRandom(seed)
    const root = await mkdtemp(join(tmpdir(), 'openflux-fuzz-'))
    const original = tarOf(
      { path: 'a/', type: 'Directory' },
      { path: 'a/file.txt', content: 'content' },
      paxHeader(paxRecord('path', 'a/long.txt')),
      good,
      { path: 'link', type: 'SymbolicLink', linkpath: '..' },
    )
    try {
      for (let round = 0; round < 400; round++) {
        const archive = Buffer.from(original)
        for (let i = random(4); i >= 0; i--) archive[random(archive.length)] = random(256)
        // Most damage would end at a wrong checksum; who forges an archive gets that right.
        for (let at = 0; at < 2560; at += 512) fixChecksum(archive.subarray(at, at + 512))
        await writeFile(join(root, 'artifact.tar.gz'), gzipSync(archive))
        const target = join(root, `target-${round}`)
        const done = extractArchive(join(root, 'artifact.tar.gz'), target, limits, {}, new AbortController().signal)
        const outcome = await done.then(
          () => [target.slice(root.length + 1)],
          (err: unknown) => {
            assert.ok(err instanceof StalledError, `seed ${seed}, round ${round}: ${String(err)}`)
            return []
          },
        )
        const left = (await readdir(root)).filter((name) => name !== 'artifact.tar.gz')
        assert.deepEqual(left, outcome, `seed ${seed}, round ${round}`)
        await rm(target, { recursive: true, force: true })
      }
    } finally {
      await rm(root, { recursive: true })
    }
  }).timeout(60_000)
})

function fixChecksum(block: Buffer): void {
  if (block.toString('latin1', 257, 262) !== 'ustar') return
  block.fill(' ', 148, 156)
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
}

function failed(message: RegExp): (err: unknown) => boolean {
  return (err) => err instanceof ReconcileError && err.reason === 'ExtractionFailed' && message.test(err.message)
}

function flipped(bytes: Buffer): Buffer {
  const middle = bytes.length >> 1
  bytes[middle] = bytes[middle]! ^ 1
  return bytes
}
