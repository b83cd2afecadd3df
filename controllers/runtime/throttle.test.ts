import assert from 'node:assert/strict'
import { eventually } from './eventually.ts'
import { Throttle } from './throttle.ts'

/** Work that ends when it is told to. */
function makeWork() {
  const ends: (() => void)[] = []
  const started: string[] = []
  const work = (name: string) => () => {
    started.push(name)
    const { promise, resolve } = Promise.withResolvers<string>()
    ends.push(() => resolve(name))
    return promise
  }
  return { ends, started, work }
}

describe('a throttle', () => {
  it('lets as many run as it may, the others in their order', async () => {
    const { ends, started, work } = makeWork()
    const throttle = new Throttle(2)
    const results = ['a', 'b', 'c', 'd'].map((name) => throttle.run(undefined, work(name)))
    await new Promise(setImmediate)
    assert.deepEqual(started, ['a', 'b'])
    ends[1]!()
    assert.equal(await results[1], 'b')
    await eventually(() => started.length === 3)
    assert.deepEqual(started, ['a', 'b', 'c'])
    ends[0]!()
    await eventually(() => started.length === 4)
    for (const end of ends) end()
    assert.deepEqual(await Promise.all(results), ['a', 'b', 'c', 'd'])
  })

  it('is not held up by work that takes long, nor by work that fails', async () => {
    const { ends, started, work } = makeWork()
    const throttle = new Throttle(1, 10)
    const slow = throttle.run(undefined, work('slow'))
    const failing = throttle.run(undefined, () => Promise.reject(new Error('no')))
    await assert.rejects(failing, /no/)
    const next = throttle.run(undefined, work('next'))
    await eventually(() => started.includes('next'))
    for (const end of ends) end()
    assert.deepEqual(await Promise.all([slow, next]), ['slow', 'next'])
  })

  it('lets who gives up leave the queue', async () => {
    const { ends, started, work } = makeWork()
    const throttle = new Throttle(1)
    const first = throttle.run(undefined, work('first'))
    const abort = new AbortController()
    const second = throttle.run(abort.signal, work('second'))
    const third = throttle.run(undefined, work('third'))
    abort.abort(new Error('gone'))
    await assert.rejects(second, /gone/)
    await assert.rejects(throttle.run(abort.signal, work('fourth')), /gone/)
    ends[0]!()
    await first
    await eventually(() => started.includes('third'))
    ends[1]!()
    await third
    assert.deepEqual(started, ['first', 'third'])
  })
})
