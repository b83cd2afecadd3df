import assert from 'node:assert/strict'
import { eventually } from './eventually.ts'
import { Workers } from './workers.ts'
import { WorkQueue } from './workqueue.ts'

const backoff = { minMs: 10, maxMs: 40 }

/** Passes that end when they are told to. */
function open(concurrent: number, maxLongPerNamespace: number, maxLong = 100) {
  const queue = new WorkQueue(backoff, maxLongPerNamespace)
  const running = new Map<string, () => void>()
  const pass = (key: string): Promise<void> => {
    const { promise, resolve } = Promise.withResolvers<void>()
    running.set(key, () => {
      running.delete(key)
      resolve()
    })
    return promise
  }
  const ended = new Workers(queue, { concurrent, pass, longMs: 20, maxLong }).run()
  return {
    queue,
    running,
    async close() {
      queue.close()
      for (const end of running.values()) end()
      await ended
    },
  }
}

describe('workers', () => {
  it('go on with other keys while some passes take long, and are no more than before when these have ended', async () => {
    const stage = open(2, 10)
    const { queue, running } = stage
    for (const key of ['a/1', 'a/2', 'a/3', 'a/4', 'a/5']) queue.add(key)
    await eventually(() => running.size === 5)
    for (const key of ['a/1', 'a/2', 'a/3', 'a/4', 'a/5']) running.get(key)!()
    await eventually(() => running.size === 0)
    for (let i = 0; i < 10; i++) queue.add(`b/${i}`)
    await new Promise(setImmediate)
    assert.equal(running.size, 2)
    await stage.close()
  })

  it('leave a namespace alone that has as many long passes as it may, and take it up again when one has ended', async () => {
    const stage = open(1, 2)
    const { queue, running } = stage
    for (const key of ['a/1', 'a/2', 'a/3', 'b/1', 'b/2', 'c/1']) queue.add(key)
    await eventually(() => running.has('c/1') && running.has('b/2'))
    assert.deepEqual([...running.keys()].toSorted(), ['a/1', 'a/2', 'b/1', 'b/2', 'c/1'])
    running.get('a/1')!()
    await eventually(() => running.has('a/3'))
    await stage.close()
  })

  it('are replaced no more often than is allowed', async () => {
    const stage = open(1, 10, 2)
    const { queue, running } = stage
    for (const key of ['a/1', 'a/2', 'a/3', 'a/4', 'a/5']) queue.add(key)
    await eventually(() => running.size === 3)
    await new Promise((resolve) => setTimeout(resolve, 60))
    assert.equal(running.size, 3)
    running.get('a/3')!()
    await eventually(() => running.has('a/4'))
    await stage.close()
  })
})
