import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { Mutex, SharedCalls } from './shared-calls.ts'

const forever = new AbortController().signal

const fail = () => delay(5).then(() => Promise.reject<number>(new Error('no')))

describe('shared calls', () => {
  it('do the work once for all who ask meanwhile, and again afterwards', async () => {
    const calls = new SharedCalls<number>()
    let runs = 0
    const work = async () => {
      await delay(5)
      return ++runs
    }
    assert.deepEqual(await Promise.all([1, 2, 3].map(() => calls.run('a', forever, work))), [1, 1, 1])
    assert.equal(await calls.run('a', forever, work), 2)
  })

  it('tell all who wait of a failure, and try again afterwards', async () => {
    const calls = new SharedCalls<number>()
    const results = await Promise.allSettled([calls.run('a', forever, fail), calls.run('a', forever, fail)])
    assert.deepEqual(
      results.map((r) => r.status),
      ['rejected', 'rejected'],
    )
    assert.equal(await calls.run('a', forever, async () => 7), 7)
  })

  it('are aborted only when nobody waits any more, and are not joined then', async () => {
    const calls = new SharedCalls<string>()
    const aborts = [new AbortController(), new AbortController()]
    let seen: AbortSignal | undefined
    const work = (signal: AbortSignal) => {
      seen = signal
      return new Promise<string>((_, reject) =>
        signal.addEventListener('abort', () => setTimeout(reject, 20, new Error('late'))),
      )
    }
    const waits = aborts.map(({ signal }) => assert.rejects(calls.run('a', signal, work), /gone/))
    aborts[0]!.abort(new Error('gone'))
    await waits[0]
    assert.equal(seen?.aborted, false)
    aborts[1]!.abort(new Error('gone'))
    await waits[1]
    assert.equal(seen?.aborted, true)
    assert.equal(await calls.run('a', forever, async () => 'new'), 'new')
  })
})

describe('a mutex', () => {
  it('lets one in at a time, in the order of asking', async () => {
    const mutex = new Mutex()
    const order: string[] = []
    const enter = (name: string) =>
      mutex.run(forever, async () => {
        order.push(`${name} in`)
        await delay(2)
        order.push(`${name} out`)
      })
    await Promise.all([enter('a'), enter('b'), enter('c')])
    assert.deepEqual(order, ['a in', 'a out', 'b in', 'b out', 'c in', 'c out'])
  })

  it('lets nobody overtake when one gives up waiting, or fails', async () => {
    const mutex = new Mutex()
    const abort = new AbortController()
    let busy = false
    const first = mutex.run(forever, async () => {
      busy = true
      await delay(20)
      busy = false
      throw new Error('failed')
    })
    const second = mutex.run(abort.signal, async () => assert.fail('ran'))
    const third = mutex.run(forever, async () => assert.equal(busy, false))
    abort.abort(new Error('gone'))
    await assert.rejects(second, /gone/)
    await assert.rejects(first, /failed/)
    await third
  })
})
