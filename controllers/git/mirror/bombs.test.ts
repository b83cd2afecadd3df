import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { promisify } from 'node:util'
import { deflateSync } from 'node:zlib'
import type { Repository } from '../../../e2e/git-server.ts'
import { anonymous } from '../access/access.ts'
import { failureOf, openStage, type Stage } from '../test-support.ts'

describe('a small repository that unfolds', function () {
  this.timeout(120_000)
  let stage: Stage
  let repository: Repository

  before(async () => {
    stage = await openStage()
    repository = await stage.server.repository('bomb.git')
  })
  after(() => stage.close())

  it('to a blob of hundreds of megabytes is refused by git, and the limit named', async () => {
    const { pack, base, unfolded } = blobBomb()
    assert.ok(pack.length < 20_000)
    await repository.git(['index-pack', '--stdin'], pack)
    const entries = [base, unfolded].map((oid, i) => ({ mode: '100644', name: `${i}`, oid }))
    const sha = await repository.rawTree(entries, 'bomb', { branch: 'blob', orphan: true })
    const mirror = stage.mirrors.mirrorFor(`${stage.server.url}/bomb.git`, anonymous)
    stage.server.reset()
    const err = await failureOf(mirror.fetchCommit({ sha }, AbortSignal.timeout(60_000)))
    assert.ok(stage.server.requests().bytesOut < 100_000, 'it came unfolded')
    assert.equal(err.reason, 'GitOperationFailed')
    assert.match(
      err.message,
      /: an object takes 3355443\d\d bytes of memory, more than the 268435456 .*GIT_ALLOC_LIMIT\)$/,
    )
    assert.deepEqual(stage.warnings, [], 'the mirror was not at fault')
  })

  it('to hundreds of megabytes of paths is refused within a heap of half a gigabyte', async () => {
    let oid = (await repository.git(['hash-object', '-w', '--stdin'], 'x')).trim()
    for (const [type, width] of [
      ['100644 blob', 100],
      ['040000 tree', 100],
      ['040000 tree', 90],
    ] as const) {
      const rows = Array.from({ length: width }, (_, i) => `${type} ${oid}\t${String(i).padStart(81, 'x')}\n`)
      oid = (await repository.git(['mktree'], rows.join(''))).trim()
    }
    const sha = await repository.rawTree([{ mode: '40000', name: 'x', oid }], 'bomb', { branch: 'paths', orphan: true })
    const script = `
      const { BareRepository } = await import(${moduleUrl('./repository.ts')})
      const { ListingBudget, listTree } = await import(${moduleUrl('../content/listing.ts')})
      const [dir, sha] = process.argv.slice(1)
      const repository = new BareRepository(dir, { home: '/nonexistent', path: process.env.PATH })
      const origin = { key: '', prefix: '', read() {} }
      const signal = AbortSignal.timeout(60_000)
      await listTree({ repository, sha, origin, budget: new ListingBudget(), signal }).then(
        ({ entries }) => console.log(entries.length),
        (err) => console.log(err.reason, err.message),
      )`
    const args = ['--max-old-space-size=512', '--input-type=module', '--eval', script, repository.dir, sha]
    const { stdout } = await promisify(execFile)(process.execPath, args)
    assert.equal(stdout, `TooManyFiles commit '${sha}' has more than 67108864 bytes of paths\n`)
  })
})

function moduleUrl(file: string): string {
  return JSON.stringify(import.meta.resolve(file))
}

/** A blob of 16 MiB of zeros, and one that is little else than twenty copies of it. */
function blobBomb(): { pack: Buffer; base: string; unfolded: string } {
  const baseBytes = 2 ** 24
  const copies = 20
  const copied = baseBytes - 1 // the most that one instruction copies
  const zeros = Buffer.alloc(baseBytes)
  const base = blobId([zeros])
  const unfolded = blobId(Array<Buffer>(copies).fill(zeros.subarray(1)))
  const copy = Buffer.from([0xf0, 0xff, 0xff, 0xff])
  const delta = Buffer.concat([varint(baseBytes), varint(copies * copied), ...Array<Buffer>(copies).fill(copy)])
  const head = Buffer.from('PACK\0\0\0\x02\0\0\0\x02', 'latin1')
  const objects = [objectHeader(3, baseBytes), deflateSync(zeros), objectHeader(7, delta.length)]
  const body = Buffer.concat([head, ...objects, Buffer.from(base, 'hex'), deflateSync(delta)])
  return { pack: Buffer.concat([body, createHash('sha1').update(body).digest()]), base, unfolded }
}

function blobId(parts: Buffer[]): string {
  const hash = createHash('sha1').update(`blob ${parts.reduce((sum, part) => sum + part.length, 0)}\0`)
  for (const part of parts) hash.update(part)
  return hash.digest('hex')
}

/** Seven bits a byte, the lowest first (gitformat-pack). */
function varint(value: number): Buffer {
  const bytes: number[] = []
  for (; value > 0x7f; value = Math.floor(value / 128)) bytes.push((value % 128) | 0x80)
  return Buffer.from([...bytes, value])
}

/** Type and four bits of the size, then the rest of it. */
function objectHeader(type: number, size: number): Buffer {
  const rest = Math.floor(size / 16)
  const first = (type << 4) | (size % 16)
  return rest > 0 ? Buffer.concat([Buffer.from([first | 0x80]), varint(rest)]) : Buffer.from([first])
}
