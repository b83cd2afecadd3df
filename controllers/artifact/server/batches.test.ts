import assert from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import { eventually } from '../../runtime/eventually.ts'
import { Batches } from './batches.ts'

/** Calls that end when they are told to, in the order they began. */
function makeCalls() {
  const calls: PromiseWithResolvers<string>[] = []
  const batches = new Batches<string>(() => {
    const call = Promise.withResolvers<string>()
    calls.push(call)
    return call.promise
  })
  return { calls, batches, begun: (count: number) => eventually(() => calls.length === count) }
}

describe('batches', () => {
  it('make one call for all who ask in one turn of the event loop', async () => {
    const { calls, batches, begun } = makeCalls()
    const answers = [batches.run('a'), batches.run('a'), batches.run('a')]
    await begun(1)
    calls[0]!.resolve('one')
    assert.deepEqual(await Promise.all(answers), ['one', 'one', 'one'])
    assert.equal(calls.length, 1)
  })

  it('make a call for each key', async () => {
    const { batches, begun } = makeCalls()
    void batches.run('a')
    void batches.run('b')
    await begun(2)
  })

  it('let who asks while a call is under way wait for the next one, as that may have seen an older state', async () => {
    const { calls, batches, begun } = makeCalls()
    const first = batches.run('a')
    await begun(1)
    const later = [batches.run('a'), batches.run('a')]
    await turn()
    assert.equal(calls.length, 1, 'one at a time')
    calls[0]!.resolve('one')
    assert.equal(await first, 'one')
    await begun(2)
    calls[1]!.resolve('two')
    assert.deepEqual(await Promise.all(later), ['two', 'two'])
  })

  it('make a new call once the turn of the answer is over', async () => {
    const { calls, batches, begun } = makeCalls()
    const first = batches.run('a')
    await begun(1)
    calls[0]!.resolve('one')
    await first
    for (let i = 0; i < 3; i++) await turn()
    void batches.run('a')
    await begun(2)
  })

  it('tell all who wait of a failure, and try again for the next', async () => {
    const { calls, batches, begun } = makeCalls()
    const failing = Promise.allSettled([batches.run('a'), batches.run('a')])
    await begun(1)
    const next = batches.run('a')
    calls[0]!.reject(new Error('no'))
    assert.deepEqual(
      (await failing).map(({ status }) => status),
      ['rejected', 'rejected'],
    )
    await begun(2)
    calls[1]!.resolve('two')
    assert.equal(await next, 'two')
  })
})
