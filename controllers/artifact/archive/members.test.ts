import assert from 'node:assert/strict'
import type { PlannedFile } from './archive-plan.ts'
import { planMembers, type Member } from './members.ts'
import { makePacer } from './pace.ts'
import { makeRandom } from '../test-support.ts'
import { makeTree, textEntry } from './test-archive.ts'

type File = Pick<PlannedFile, 'path' | 'sizeBytes'> & Partial<PlannedFile>

function planOf(files: readonly File[]): Promise<Member[]> {
  const sorted = files.toSorted((a, b) => (a.path < b.path ? -1 : 1))
  return planMembers(
    sorted.map((file) => ({ mode: 0o644, open: () => assert.fail('opened'), ...file })),
    makePacer(),
  )
}

async function keysOf(files: readonly File[]): Promise<(string | undefined)[]> {
  return (await planOf(files)).map(({ key }) => key)
}

describe('members', function () {
  this.timeout(60_000)

  it('holds every file once, in its order, about 64 KiB together', async () => {
    for (const meanBytes of [50, 500, 5000, 12_000, 40_000]) {
      const files = makeTree(1, 3000, meanBytes).toSorted((a, b) => (a.path < b.path ? -1 : 1))
      const members = await planOf(files)
      assert.equal(members[0]!.first, 0)
      for (const [at, { first }] of members.entries()) if (at > 0) assert.equal(first, members[at - 1]!.end)
      assert.equal(members.at(-1)!.end, files.length)
      const mean = files.reduce((sum, { sizeBytes }) => sum + 512 + sizeBytes, 0) / members.length
      for (const { first, end } of members) {
        const beforeLast = files.slice(first, end - 1).reduce((sum, { sizeBytes }) => sum + 512 + sizeBytes, 0)
        assert.ok(beforeLast < 128 * 1024, `${beforeLast} bytes and one more file`)
      }
      assert.ok(mean > 32 * 1024 && mean < 112 * 1024, `files of ${meanBytes} bytes: members of ${mean}`)
    }
  })

  it('gives a large file members of its own, one for each MiB', async () => {
    const members = await planOf([
      textEntry('a', 10, 1),
      textEntry('b', 3 * 2 ** 20 + 1, 2),
      textEntry('c', 10, 3),
      textEntry('d', 128 * 1024 + 1, 4),
      textEntry('e', 128 * 1024, 5),
    ])
    assert.deepEqual(
      members.map(({ first, end, segment, segments }) => [first, end, segment, segments]),
      [[0, 1, 0, 1], ...[0, 1, 2, 3].map((segment) => [1, 2, segment, 4]), [2, 3, 0, 1], [3, 4, 0, 1], [4, 5, 0, 1]],
    )
    assert.equal(new Set(members.map(({ key }) => key)).size, members.length)
  })

  it('has other keys for whatever alters the bytes', async () => {
    const file: File = { path: 'a/b/x', mode: 0o644, sizeBytes: 5, contentId: '1' }
    const others: File[] = [
      { ...file, path: 'a/b/y' },
      { ...file, mode: 0o755 },
      { ...file, sizeBytes: 6 },
      { ...file, contentId: '2' },
      { ...file, contentId: undefined, target: '1' },
      { ...file, contentId: undefined, target: 'file' },
    ]
    const keys = await Promise.all([file, ...others].map(async (each) => (await keysOf([each]))[0]))
    assert.equal(new Set(keys).size, keys.length)
    const large = { path: 'a/a', sizeBytes: 200_000, contentId: 'l' }
    const [, below] = await keysOf([large, file])
    const [, aside] = await keysOf([{ ...large, path: 'Z' }, file])
    assert.notEqual(below, aside, 'the headers of folders that the neighbour has already')
    assert.deepEqual(await keysOf([{ ...file, mode: 0o600 }]), [keys[0]], 'only the executable bits count')
  })

  it('has no key where a content has no id, but for links', async () => {
    const named = textEntry('a', 5, 1)
    assert.deepEqual(await keysOf([named, { ...named, path: 'b', contentId: undefined }]), [undefined])
    assert.deepEqual(await keysOf([{ path: 'c', sizeBytes: 200_000 }]), [undefined])
    assert.equal(typeof (await keysOf([{ path: 'd', sizeBytes: 0, target: 'a' }]))[0], 'string')
  })

  it('has the same bounds again soon after a file that was added, removed or resized', async () => {
    const seed = Date.now() % 2 ** 32
    const random = makeRandom(seed)
    let total = 0
    const edits = 150
    for (let edit = 0; edit < edits; edit++) {
      const files = makeTree(random(2 ** 31), 1000, [300, 3000, 12_000][edit % 3]!)
      const before = new Set(await keysOf(files))
      const at = random(files.length)
      const { path } = files[at]!
      const changed = textEntry(edit % 2 ? path : `${path}-new`, random(30_000), random(2 ** 31))
      const after = await keysOf([...files.slice(0, at), ...(edit % 5 ? [changed] : []), ...files.slice(at + 1)])
      const remade = after.filter((key) => !before.has(key)).length
      assert.ok(remade <= 25, `seed ${seed}, edit ${edit}: ${remade} of ${after.length} members are new`)
      total += remade
    }
    assert.ok(total / edits < 5, `seed ${seed}: ${total / edits} members for one file`)
  })
})
