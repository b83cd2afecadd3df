import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { appendFile, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { temporaryFolder } from '../../../e2e/tools/temporary.ts'
import { eventuallyHolds } from '../../runtime/eventually.ts'
import { wholeOf } from '../test-support.ts'
import { ObjectStore } from './object-store.ts'
import type { Pointer } from './pointer.ts'

describe('the store of LFS objects', () => {
  const contents = { small: Buffer.from('small'), other: randomBytes(700_000), large: randomBytes(3_000_000) }
  const forever = { maxBytes: 1e9, maxUnusedMs: 3_600_000 }
  let folder: string
  let store: ObjectStore

  beforeEach(async () => {
    folder = await temporaryFolder()
    store = new ObjectStore(join(folder, 'objects'))
    for (const content of Object.values(contents)) await receive(content, content)
  })
  afterEach(() => rm(folder, { recursive: true, force: true }))

  const pointerTo = (content: Buffer): Pointer => {
    return { oid: createHash('sha256').update(content).digest('hex'), sizeBytes: content.length }
  }
  const fileOf = (content: Buffer) => join(folder, 'objects', pointerTo(content).oid)
  const names = async () => (await readdir(join(folder, 'objects'))).toSorted()
  const namesOf = (...kept: Buffer[]) => kept.map((content) => pointerTo(content).oid).toSorted()

  /** Stores what comes in the place of `content`; gives what was passed on. */
  async function receive(content: Buffer, comes: Buffer): Promise<Buffer> {
    const pieces = Array.from({ length: 10 }, (_, i) =>
      comes.subarray((comes.length * i) / 10, (comes.length * (i + 1)) / 10),
    )
    return await wholeOf(Readable.from(store.receive(pointerTo(content), Readable.from(pieces))))
  }

  it('gives what has been put into it, a large object as a stream', async () => {
    for (const [name, content] of Object.entries(contents)) {
      const body = await store.read(pointerTo(content))
      assert.equal(body instanceof Readable, name === 'large')
      assert.ok((await wholeOf(body!)).equals(content))
      assert.ok(await store.has(pointerTo(content)))
    }
    const unknown = { ...pointerTo(contents.small), oid: '0'.repeat(64) }
    assert.deepEqual([await store.has(unknown), await store.read(unknown)], [false, undefined])
  })

  it('keeps nothing that is not what the pointer says', async () => {
    const content = Buffer.from('expected')
    const before = await names()
    const wrong: [string, RegExp][] = [
      ['expect', /it has 6 bytes where the pointer says 8$/],
      ['unexpected', /it has more than the 8 bytes that the pointer says$/],
      ['Expected', /its content is not what the pointer says$/],
    ]
    for (const [comes, why] of wrong) {
      await assert.rejects(receive(content, Buffer.from(comes)), why)
      assert.deepEqual(await names(), before)
    }
  })

  it('keeps nothing of what is given up', async () => {
    const before = await names()
    const content = randomBytes(100_000)
    const body = Readable.from(store.receive(pointerTo(content), Readable.from([content.subarray(0, 1000), content])))
    for await (const piece of body) {
      assert.ok(piece)
      break
    }
    await eventuallyHolds(async () => assert.deepEqual(await names(), before))
  })

  it('finds out when a file has been altered, which is gone then', async () => {
    await writeFile(fileOf(contents.small), 'smell')
    assert.equal(await store.read(pointerTo(contents.small)), undefined)
    await appendFile(fileOf(contents.other), 'x')
    assert.equal(await store.read(pointerTo(contents.other)), undefined)
    await writeFile(fileOf(contents.large), Buffer.concat([contents.large.subarray(1), Buffer.of(0)]))
    const stream = await store.read(pointerTo(contents.large))
    await assert.rejects(wholeOf(stream!), /its content is not what the pointer says/)
    assert.equal(await store.has(pointerTo(contents.large)), false)
  })

  it('forgets what nobody has used for long, and the least recently used where there is too much', async () => {
    const { small, other, large } = contents
    const at = (hours: number) => new Date(Date.now() - hours * 3_600_000)
    await writeFile(join(folder, 'objects', 'left.part'), 'x')
    await writeFile(join(folder, 'objects', 'right.part'), 'x')
    await utimes(join(folder, 'objects', 'left.part'), at(2), at(2))
    await utimes(fileOf(small), at(2), at(2))
    await utimes(fileOf(large), at(0.5), at(0.5))
    await store.sweep(forever)
    assert.deepEqual(await names(), [...namesOf(other, large), 'right.part'].toSorted())
    await wholeOf((await store.read(pointerTo(large)))!)
    await utimes(fileOf(other), at(0.2), at(0.2))
    await store.sweep({ ...forever, maxBytes: large.length })
    assert.deepEqual(await names(), [...namesOf(large), 'right.part'].toSorted())
  })
})
