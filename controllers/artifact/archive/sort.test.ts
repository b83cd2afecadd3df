import assert from 'node:assert/strict'
import { makePacer } from './pace.ts'
import { sortByKey } from './sort.ts'
import { makeRandom } from '../test-support.ts'

describe('sorting by key', function () {
  this.timeout(60_000)

  for (const length of [0, 1, 2, 8192, 8193, 20_000, 100_003]) {
    it(`does as the engine does, with ${length} items`, async () => {
      const seed = Date.now() % 2 ** 32
      const random = makeRandom(seed)
      const items = Array.from({ length }, (_, i) => ({ key: String(random(length)), i }))
      const expected = items.toSorted((a, b) => (a.key < b.key ? -1 : Number(a.key > b.key)))
      assert.deepEqual(await sortByKey(items, makePacer()), expected, `seed ${seed}`)
    })
  }
})
