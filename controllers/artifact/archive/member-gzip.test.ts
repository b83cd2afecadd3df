import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, readlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { createGunzip, gunzipSync } from 'node:zlib'
import { extract } from 'tar'
import type { Entry } from '../entry.ts'
import { gzipSingle } from './gzip.ts'
import { gzipMembers, type MemberCache } from './member-gzip.ts'
import type { Member } from './members.ts'
import { archiveOf, linkEntry, listed, makeTree, textEntry } from './test-archive.ts'
import { makeTempFolder } from '../test-support.ts'

const run = promisify(execFile)

/** Go's own packages, as Flux's deployers use them. */
const goReader = `package main

import ("archive/tar"; "compress/gzip"; "crypto/sha256"; "fmt"; "io"; "os")

func main() {
	unzipped, err := gzip.NewReader(os.Stdin)
	if err != nil { panic(err) }
	archive := tar.NewReader(unzipped)
	for {
		header, err := archive.Next()
		if err == io.EOF { break }
		if err != nil { panic(err) }
		if header.Typeflag == tar.TypeDir { continue }
		hash := sha256.New()
		if _, err := io.Copy(hash, archive); err != nil { panic(err) }
		fmt.Printf("%s %s %x\\n", header.Name, header.Linkname, hash.Sum(nil))
	}
	if rest, err := io.Copy(io.Discard, unzipped); rest != 0 || err != nil { panic("not at the end") }
}
`

const tree: Entry[] = [
  ...makeTree(3, 120, 5000),
  textEntry('apps/large.bin', 1_200_000, 1),
  textEntry(`${'folder-'.repeat(20)}/${'é'.repeat(100)}`, 100, 2),
  textEntry('empty', 0, 3),
  linkEntry('link', 'apps/large.bin'),
  linkEntry('far', `${'folder-'.repeat(20)}/${'é'.repeat(100)}`),
]
const treeWithLinks = { symlinks: 'keep' } as const

/** `path target hash` of everything that is not a folder. */
async function expected(): Promise<string[]> {
  const lines = tree.map(async (entry) => {
    const body = await entry.open()
    assert.ok(Buffer.isBuffer(body))
    return line(entry.path, entry.type === 'symlink' ? body.toString() : '', entry.type === 'symlink' ? '' : body)
  })
  return (await Promise.all(lines)).toSorted()
}

function line(path: string, target: string, content: Buffer | string): string {
  return `${path} ${target} ${createHash('sha256').update(content).digest('hex')}`
}

async function onDisk(folder: string): Promise<string[]> {
  const found = await readdir(folder, { recursive: true, withFileTypes: true })
  const lines = found.map(async (entry) => {
    const file = join(entry.parentPath, entry.name)
    const path = file.slice(folder.length + 1)
    if (entry.isDirectory()) return []
    return [entry.isSymbolicLink() ? line(path, await readlink(file), '') : line(path, '', await readFile(file))]
  })
  return (await Promise.all(lines)).flat().toSorted()
}

/** Remembers members by their bytes, with as many holes as `knows` leaves. */
class Cache implements MemberCache {
  readonly members = new Map<string, Buffer>()
  readonly added: (string | undefined)[] = []
  /** By the order in which they were added first. */
  knows = (_at: number): boolean => true

  has(key: string): boolean {
    return this.members.has(key) && this.knows([...this.members.keys()].indexOf(key))
  }

  async read(members: readonly Member[], at: number): Promise<{ count: number; bytes: Buffer }> {
    const found: Buffer[] = []
    for (let key = members[at]?.key; key !== undefined && this.has(key); key = members[at + found.length]?.key) {
      found.push(this.members.get(key)!)
    }
    return { count: found.length, bytes: Buffer.concat(found) }
  }

  add(key: string | undefined, bytes: Buffer): void {
    this.added.push(key)
    if (key !== undefined && !this.members.has(key)) this.members.set(key, bytes)
  }
}

describe('gzip members', function () {
  this.timeout(120_000)
  let bytes: Buffer

  before(async () => {
    ;({ bytes } = await archiveOf(tree, treeWithLinks))
  })

  it('unpack to the very tar that one member has, for 7 % more', async () => {
    const single = await archiveOf(tree, { ...treeWithLinks, compress: gzipSingle })
    assert.ok(gunzipSync(bytes).equals(gunzipSync(single.bytes)))
    assert.ok(bytes.length > single.bytes.length && bytes.length < 1.07 * single.bytes.length)
    const first = createGunzip()
    Readable.from([single.bytes]).pipe(first).resume()
    await new Promise((resolve) => first.once('end', resolve))
    assert.equal(first.bytesWritten, single.bytes.length)
  })

  it('are read by GNU gzip and tar', async () => {
    await using folder = await makeTempFolder()
    const file = join(folder.path, 'a.tar.gz')
    await writeFile(file, bytes)
    await run('gzip', ['-t', file])
    const target = join(folder.path, 'out')
    await mkdir(target)
    await run('tar', ['xzf', file, '-C', target])
    assert.deepEqual(await onDisk(target), await expected())
  })

  it('are read by Go', async () => {
    await using folder = await makeTempFolder()
    const file = join(folder.path, 'main.go')
    await writeFile(file, goReader)
    const go = run('go', ['run', file], { env: { ...process.env, GOWORK: 'off' }, maxBuffer: 2 ** 24 })
    go.child.stdin?.end(bytes)
    assert.deepEqual((await go).stdout.trimEnd().split('\n').toSorted(), await expected())
  })

  it('are read by node-tar', async () => {
    await using folder = await makeTempFolder()
    await writeFile(join(folder.path, 'a.tar.gz'), bytes)
    const target = join(folder.path, 'out')
    await mkdir(target)
    await extract({ file: join(folder.path, 'a.tar.gz'), cwd: target, strict: true })
    assert.deepEqual(await onDisk(target), await expected())
  })

  it('are the same bytes whatever is known already, and only what is not known is read, once and in order', async () => {
    const paths = tree.map(({ path }) => path)
    const walked = (await listed(bytes)).map(({ path }) => path).filter((path) => paths.includes(path))
    const holes: ((at: number) => boolean)[] = [() => false, () => true, (at) => at % 2 === 0, (at) => at % 7 !== 3]
    const cache = new Cache()
    await archiveOf(tree, { ...treeWithLinks, compress: gzipMembers(cache) })
    for (const [i, knows] of holes.entries()) {
      const opened: string[] = []
      cache.knows = knows
      cache.added.length = 0
      const observed = tree.map((entry): Entry => ({ ...entry, open: () => (opened.push(entry.path), entry.open()) }))
      const again = await archiveOf(observed, { ...treeWithLinks, compress: gzipMembers(cache) })
      assert.ok(again.bytes.equals(bytes), `case ${i}`)
      const files = opened.filter((path) => path !== 'link' && path !== 'far')
      assert.deepEqual(
        files,
        walked.filter((path) => files.includes(path)),
        `case ${i}`,
      )
      if (i === 1) assert.deepEqual(files, [])
      if (i > 1) assert.ok(files.length > 0 && files.length < 110, `case ${i}: ${files.length} read`)
    }
  })

  it('make the rest of a large file anew from its first unknown segment on, with one look at it', async () => {
    const opened: string[] = []
    const entries = [textEntry('a', 10, 1), textEntry('large', 2_500_000, 2, opened), textEntry('z', 10, 3)]
    for (const asStream of [false, true]) {
      const cache = new Cache()
      const source = entries.map((entry): Entry => {
        const open = async (): Promise<Buffer | Readable> => {
          const body = (await entry.open()) as Buffer
          return asStream ? Readable.from([body.subarray(0, 1_234_567), body.subarray(1_234_567)]) : body
        }
        return { ...entry, open }
      })
      const whole = await archiveOf(source, { compress: gzipMembers(cache) })
      for (let missing = 0; missing < 3; missing++) {
        opened.length = 0
        // `a`, three segments, `z`.
        cache.knows = (at) => at !== 1 + missing
        cache.added.length = 0
        const again = await archiveOf(source, { compress: gzipMembers(cache) })
        assert.ok(again.bytes.equals(whole.bytes))
        assert.deepEqual([opened, cache.added.length], [['large'], 3 - missing + 1])
      }
    }
  })

  it('do not take one content for another', async () => {
    const cache = new Cache()
    const compress = gzipMembers(cache)
    await archiveOf([textEntry('a', 100, 1), textEntry('b', 100, 2)], { compress })
    const swapped = [textEntry('a', 100, 2), textEntry('b', 100, 1)]
    const { bytes: warm } = await archiveOf(swapped, { compress })
    assert.ok(warm.equals((await archiveOf(swapped)).bytes))
  })

  it('are read and made anew every time where nothing names the content', async () => {
    const opened: string[] = []
    const entries = makeTree(1, 20, 1000, opened).map((entry): Entry => {
      const { path, mode, sizeBytes } = entry
      return { path, mode, sizeBytes, open: () => entry.open() }
    })
    const compress = gzipMembers(new Cache())
    await archiveOf(entries, { compress })
    await archiveOf(entries, { compress })
    assert.equal(opened.length, 40)
  })
})
