import assert from 'node:assert/strict'
import { access, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { openStorage, type StorageOptions } from './storage.ts'
import { entriesOf } from '../test-support.ts'
import { host } from './temps.ts'
import { folder, makeStorage, type StorageFixture } from './test-storage.ts'

/** Seconds at which each name is stored, the rule, the second of the collection, and what is then left. */
interface Case {
  stores: [number, string][]
  ttl: number
  records: number
  at: number
  kept: string
}

const cases: Record<string, Case> = {
  'the current one stays for ever': { stores: [[0, 'a']], ttl: 60, records: 1, at: 1e9, kept: 'a' },
  'the newest records stay however old they are': {
    stores: [
      [0, 'a'],
      [1, 'b'],
      [2, 'c'],
    ],
    ttl: 60,
    records: 2,
    at: 1e6,
    kept: 'bc',
  },
  'what was superseded within the TTL stays however many there are': {
    stores: [
      [0, 'a'],
      [1, 'b'],
      [2, 'c'],
      [3, 'd'],
    ],
    ttl: 60,
    records: 2,
    at: 61,
    kept: 'abcd',
  },
  'both must be passed': {
    stores: [
      [0, 'a'],
      [1, 'b'],
      [2, 'c'],
      [3, 'd'],
    ],
    ttl: 60,
    records: 2,
    at: 62,
    kept: 'bcd',
  },
  'the age is that of the supersession, not of the file': {
    stores: [
      [0, 'a'],
      [1000, 'b'],
      [1001, 'c'],
    ],
    ttl: 60,
    records: 1,
    at: 1030,
    kept: 'abc',
  },
  'exactly the TTL is not past it': {
    stores: [
      [0, 'a'],
      [10, 'b'],
    ],
    ttl: 60,
    records: 1,
    at: 70,
    kept: 'ab',
  },
  'a moment later it is': {
    stores: [
      [0, 'a'],
      [10, 'b'],
    ],
    ttl: 60,
    records: 1,
    at: 70.001,
    kept: 'b',
  },
  'no TTL: the records alone': {
    stores: [
      [0, 'a'],
      [1, 'b'],
      [2, 'c'],
    ],
    ttl: 0,
    records: 2,
    at: 3,
    kept: 'bc',
  },
  'no records: the current one alone': {
    stores: [
      [0, 'a'],
      [1, 'b'],
    ],
    ttl: 1,
    records: 0,
    at: 100,
    kept: 'b',
  },
  'what became current again counts from then': {
    stores: [
      [0, 'a'],
      [1, 'b'],
      [2, 'a'],
    ],
    ttl: 60,
    records: 1,
    at: 1e6,
    kept: 'a',
  },
  'what was used last stays, not what was made last': {
    stores: [
      [0, 'a'],
      [1, 'b'],
      [2, 'c'],
      [3, 'a'],
      [4, 'd'],
    ],
    ttl: 1,
    records: 2,
    at: 1e6,
    kept: 'ad',
  },
}

async function left({ root }: StorageFixture): Promise<string> {
  const names = await readdir(join(root, folder))
  return names
    .filter((name) => /^[a-z]\.tar\.gz$/.test(name))
    .map((name) => name.slice(0, 1))
    .toSorted()
    .join('')
}

function storageFor(
  { ttl, records }: Pick<Case, 'ttl' | 'records'>,
  more: Partial<StorageOptions> = {},
): Promise<StorageFixture> {
  return makeStorage({ retentionTtlMs: ttl * 1000, retentionRecords: records, ...more })
}

describe('retention', function () {
  this.timeout(60_000)

  for (const [name, { stores, ttl, records, at, kept }] of Object.entries(cases)) {
    it(name, async () => {
      await using f = await storageFor({ ttl, records })
      const start = f.clock.ms
      for (const [second, content] of stores) {
        f.clock.ms = start + second * 1000
        await f.store(content)
      }
      f.clock.ms = start + at * 1000
      const all = [...new Set(stores.map(([, content]) => content))]
      const removed = await f.storage.collectGarbage(folder)
      assert.equal(await left(f), kept)
      const gone = all.filter((content) => !kept.includes(content))
      assert.deepEqual(
        removed.toSorted(),
        gone.toSorted().map((content) => `${folder}/${content}.tar.gz`),
      )
      for (const content of all) {
        const found = await f.storage.find(folder, { revision: `main@sha1:${content}` })
        assert.equal(found !== undefined, kept.includes(content), content)
      }
      assert.deepEqual(await f.storage.collectGarbage(folder), [])
    })
  }

  it('never removes the path that the caller calls current', async () => {
    await using f = await storageFor({ ttl: 0, records: 1 })
    const { artifact } = await f.store('a')
    await f.store('b')
    f.clock.ms += 1e9
    assert.deepEqual(await f.storage.collectGarbage(folder, artifact.path), [])
    assert.deepEqual(await f.storage.collectGarbage(folder, `${folder}/b.tar.gz`), [artifact.path])
  })

  it('forgets old spans of a file that is still there', async () => {
    await using f = await storageFor({ ttl: 60, records: 2 })
    for (let i = 0; i < 10; i++) {
      f.clock.ms += 1000
      await f.store(i % 2 ? 'b' : 'a')
    }
    const time = new Date(f.clock.ms - 5000)
    assert.ok(await f.storage.find(folder, { time }))
    f.clock.ms += 1e6
    await f.storage.collectGarbage(folder)
    assert.equal(await f.storage.find(folder, { time }), undefined)
    assert.equal(await left(f), 'ab')
  })

  it('removes files that no log knows, once they are older than the TTL', async () => {
    await using f = await makeStorage({ now: Date.now, monotonic: () => performance.now(), retentionTtlMs: 60_000 })
    await f.store('a')
    await writeFile(join(f.root, folder, 'stray.tar.gz'), 'stray')
    assert.deepEqual(await f.storage.collectGarbage(folder), [])
    await utimes(join(f.root, folder, 'stray.tar.gz'), 1, 1)
    assert.deepEqual(await f.storage.collectGarbage(folder), [], 'it got this name just now')
    const later = await openStorage({ root: f.root, now: () => Date.now() + 61_000 })
    assert.deepEqual(await later.collectGarbage(folder), [`${folder}/stray.tar.gz`])
    assert.equal(await left(f), 'a')
  })

  it('is not hurried by a clock that jumps', async () => {
    const monotonic = { ms: 0 }
    await using f = await storageFor({ ttl: 60, records: 1 }, { monotonic: () => monotonic.ms })
    await f.store('a')
    await f.store('b')
    f.clock.ms += 3_600_000
    assert.deepEqual(await f.storage.collectGarbage(folder), [])
    monotonic.ms += 60_001
    assert.equal((await f.storage.collectGarbage(folder)).length, 1)
    f.clock.ms -= 10 * 3_600_000
    const { artifact } = await f.store('c')
    assert.ok(artifact.lastUpdateTime >= '2026-01-02T03:04:05Z', 'time does not run backwards')
    assert.equal((await f.storage.find(folder, 'latest'))?.path, artifact.path)
  })

  it('does nothing where there is nothing', async () => {
    await using f = await makeStorage()
    assert.deepEqual(await f.storage.collectGarbage(folder), [])
  })
})

describe('sweep', function () {
  this.timeout(60_000)

  it('removes the folder of an object that has been gone for the whole TTL', async () => {
    await using f = await storageFor({ ttl: 60, records: 2 })
    const { artifact } = await f.store('a')
    const live = 'gitrepository/team-b/app'
    await f.store('b', 'r', 'b', live)
    let alive = [folder, live]
    const sweep = async (): Promise<string[]> =>
      (await f.storage.sweep('gitrepository', (each) => alive.includes(each))).folders
    alive = [live]
    assert.deepEqual(await sweep(), [])
    f.clock.ms += 50_000
    assert.deepEqual(await sweep(), [])
    alive = [folder, live]
    assert.deepEqual(await sweep(), [], 'made again')
    alive = [live]
    assert.deepEqual(await sweep(), [])
    f.clock.ms += 59_000
    assert.deepEqual(await sweep(), [], 'not without a break')
    assert.equal(await f.storage.check(artifact), 'intact')
    f.clock.ms += 1001
    assert.deepEqual(await sweep(), [folder])
    assert.equal(await f.storage.check(artifact), 'missing')
    assert.deepEqual(await f.storage.patrol(), [], 'nobody misses it')
    assert.deepEqual(await readdir(join(f.root, 'gitrepository')), ['team-b'])
    assert.deepEqual(await readdir(join(f.root, '.openflux/tmp')), [])
  })

  it('looks at one kind alone, and at nothing else in the folder', async () => {
    await using f = await storageFor({ ttl: 0, records: 1 })
    await f.store('a', 'r', 'a', 'bucket/x/y')
    await f.store('a')
    await writeFile(join(f.root, 'gitrepository', 'note.txt'), '')
    const asked: string[] = []
    for (let i = 0; i < 2; i++) {
      await f.storage.sweep('gitrepository', (each) => (asked.push(each), false))
      f.clock.ms += 1
    }
    assert.deepEqual(new Set(asked), new Set([folder]))
    await access(join(f.root, 'bucket/x/y/a.tar.gz'))
    await assert.rejects(
      f.storage.sweep('../x', () => false),
      { reason: 'InvalidPath' },
    )
    await assert.rejects(
      f.storage.sweep('.openflux', () => false),
      { reason: 'InvalidPath' },
    )
  })

  it('removes blobs that nobody uses any more', async () => {
    await using f = await storageFor({ ttl: 0, records: 1 })
    const { artifact } = await f.store('a')
    const blob = join(f.root, '.openflux/blobs/sha256', artifact.digest.slice(7, 9), artifact.digest.slice(7))
    assert.equal((await f.storage.sweep('gitrepository', () => true)).blobs, 0)
    await f.store('b')
    f.clock.ms += 1
    await f.storage.collectGarbage(folder)
    assert.equal((await stat(blob)).nlink, 1)
    assert.equal((await f.storage.sweep('gitrepository', () => true)).blobs, 1)
    await assert.rejects(access(blob))
    assert.equal(await f.storage.check((await f.store('a')).artifact), 'intact')
  })

  it('takes no blob away from a store that runs at the same time', async () => {
    await using f = await storageFor({ ttl: 0, records: 1 })
    const stop = new AbortController()
    const sweeping = (async () => {
      while (!stop.signal.aborted) await f.storage.sweep('gitrepository', () => true)
    })()
    for (let i = 0; i < 60; i++) {
      const { artifact } = await f.store(`x${i % 2}`)
      f.clock.ms += 1
      await f.storage.collectGarbage(folder, artifact.path)
      assert.equal(await f.storage.check(artifact), 'intact')
    }
    stop.abort()
    await sweeping
  })

  it('removes what dead processes have left unfinished, and nothing else', async () => {
    await using f = await makeStorage()
    const temps = join(f.root, '.openflux/tmp')
    const nonce = '0123456789abcdef'
    const names = {
      dead: `${host}.4194305.${nonce}.0`,
      earlier: `${host}.${process.pid}.${nonce}.0`,
      alive: `${host}.1.${nonce}.0`,
      // The same host's name and pid mean nothing in another pid namespace.
      beside: `${host.replace(/-\d+$/, '-1')}.4194305.${nonce}.0`,
      elsewhere: `some-other-host.7.${nonce}.0`,
      stray: 'stray',
    }
    for (const name of Object.values(names)) await writeFile(join(temps, name), '')
    await openStorage({ root: f.root })
    assert.deepEqual(
      (await readdir(temps)).toSorted(),
      [names.alive, names.beside, names.elsewhere, names.stray].toSorted(),
      'at once',
    )
    for (const name of [names.beside, names.elsewhere, names.stray]) await utimes(join(temps, name), 1, 1)
    assert.equal((await f.storage.sweep('gitrepository', () => true)).temps, 3)
    assert.deepEqual(await readdir(temps), [names.alive])
  })

  it('is not in the way of objects that are made again meanwhile', async () => {
    await using f = await storageFor({ ttl: 0, records: 1 })
    for (let i = 0; i < 20; i++) {
      await f.store('a')
      let live = false
      const sweeping = (async () => {
        for (let n = 0; n < 3; n++) {
          await f.storage.sweep('gitrepository', () => live)
          f.clock.ms += 1
        }
      })()
      live = true
      const { artifact } = await f.storage.store(folder, 'r', entriesOf({ x: String(i) }), { fileName: `h${i}` })
      await sweeping
      assert.equal(await f.storage.check(artifact), 'intact')
    }
    await rm(f.root, { recursive: true })
  })
})
