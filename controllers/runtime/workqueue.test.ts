import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { WorkQueue } from './workqueue.ts'

const backoff = { minMs: 10, maxMs: 40 }

describe('work queue', () => {
  it('holds each key once, in the order of arrival', async () => {
    const queue = new WorkQueue(backoff)
    for (const key of ['a', 'b', 'a', 'c', 'b']) queue.add(key)
    assert.equal(queue.depth, 3)
    assert.deepEqual([await queue.take(), await queue.take(), await queue.take()], ['a', 'b', 'c'])
  })

  it('lets namespaces take turns, so that many keys of one do not hold up another', async () => {
    const queue = new WorkQueue(backoff)
    for (const key of ['a/1', 'a/2', 'a/3', 'b/1', 'c/1', 'b/2']) queue.add(key)
    const taken: (string | undefined)[] = []
    for (let i = 0; i < 6; i++) taken.push(await queue.take())
    assert.deepEqual(taken, ['a/1', 'b/1', 'c/1', 'a/2', 'b/2', 'a/3'])
  })

  it('hands a key out again only after it is done', async () => {
    const queue = new WorkQueue(backoff)
    queue.add('a')
    assert.equal(await queue.take(), 'a')
    queue.add('a')
    queue.add('a')
    queue.add('b')
    assert.equal(await queue.take(), 'b')
    assert.equal(queue.depth, 0)
    queue.done('a')
    assert.equal(queue.depth, 1)
    assert.equal(await queue.take(), 'a')
    queue.done('a')
    assert.equal(queue.depth, 0)
  })

  it('wakes a worker that waits, and marks the key as worked on at once', async () => {
    const queue = new WorkQueue(backoff)
    const waiting = queue.take()
    queue.add('a')
    queue.add('a')
    assert.equal(await waiting, 'a')
    assert.equal(queue.depth, 0)
    queue.done('a')
    assert.equal(await queue.take(), 'a')
  })

  it('delivers a delayed key once, at the earliest of its times', async () => {
    const queue = new WorkQueue(backoff)
    queue.addAfter('a', 60_000)
    queue.addAfter('a', 5)
    queue.addAfter('a', 120_000)
    assert.equal(await queue.take(), 'a')
    queue.done('a')
    await delay(20)
    assert.equal(queue.depth, 0)
    queue.close()
  })

  it('ends a delay when the key is added at once', async () => {
    const queue = new WorkQueue(backoff)
    queue.addAfter('a', 15)
    queue.add('a')
    assert.equal(await queue.take(), 'a')
    queue.done('a')
    await delay(40)
    assert.equal(queue.depth, 0)
  })

  it('doubles the wait with each failure up to the longest, and begins anew after forget', () => {
    const waits: number[] = []
    const queue = new WorkQueue(backoff)
    queue.addAfter = (_key, delayMs) => waits.push(delayMs)
    for (let i = 0; i < 4; i++) queue.addFailed('a')
    queue.forget('a')
    queue.addFailed('a')
    queue.addFailed('a', 1000)
    assert.deepEqual(waits, [10, 20, 40, 40, 10, 1000])
  })

  it('does not let anybody who asks cut short a backoff, but a change may', async () => {
    const queue = new WorkQueue({ minMs: 60_000, maxMs: 60_000 })
    queue.addFailed('a')
    queue.addUnlessFailing('a')
    queue.addUnlessFailing('b')
    assert.equal(await queue.take(), 'b')
    assert.equal(queue.depth, 0)
    queue.add('a')
    assert.equal(await queue.take(), 'a')
    queue.close()
  })

  it('ends every wait when it is closed, and takes nothing in any more', async () => {
    const queue = new WorkQueue(backoff)
    const waits = [queue.take(), queue.take()]
    queue.close()
    queue.add('a')
    assert.deepEqual(await Promise.all([...waits, queue.take()]), [undefined, undefined, undefined])
  })

  it('lets a key that always fails starve no other', async () => {
    const queue = new WorkQueue({ minMs: 0, maxMs: 0 })
    for (const key of ['ns/poison', 'ns/a', 'ns/b']) queue.add(key)
    const seen: string[] = []
    for (let i = 0; i < 6; i++) {
      const key = (await queue.take())!
      seen.push(key)
      if (key === 'ns/poison') queue.addFailed(key)
      queue.done(key)
    }
    assert.deepEqual(seen.slice(0, 4), ['ns/poison', 'ns/a', 'ns/b', 'ns/poison'])
    queue.close()
  })
}).timeout(5000)
