import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { TokenCache } from './token-cache.ts'

const user = { kind: 'GitRepository', name: 'app', namespace: 'ns' }
const signal = new AbortController().signal

describe('kept tokens', () => {
  let made: number

  beforeEach(() => (made = 0))
  const ask = (cache: TokenCache, name: unknown, lifeMs?: number) =>
    cache.get([name], user, signal, () => {
      const expiresAtMs = lifeMs === undefined ? undefined : Date.now() + lifeMs
      return Promise.resolve({ value: ++made, expiresAtMs })
    })

  it('are used for four fifths of their life', async () => {
    const cache = new TokenCache({ maxEntries: 10, maxDurationMs: 3_600_000 })
    const start = performance.now()
    assert.equal(await ask(cache, 'a', 500), 1)
    let elapsedMs = 0
    while ((await ask(cache, 'a', 500)) === 1) {
      await delay(5)
      elapsedMs = performance.now() - start
    }
    assert.equal(made, 2)
    assert.ok(elapsedMs >= 390, `after ${elapsedMs} ms`)
  })

  it('are used no longer than the longest duration, whatever they say', async () => {
    const cache = new TokenCache({ maxEntries: 10, maxDurationMs: 0 })
    assert.deepEqual([await ask(cache, 'a'), await ask(cache, 'a', 3_600_000)], [1, 2])
    const kept = new TokenCache({ maxEntries: 10, maxDurationMs: 60_000 })
    assert.deepEqual([await ask(kept, 'a'), await ask(kept, 'a')], [3, 3])
  })

  it('are as many as there is room for, those used last', async () => {
    const cache = new TokenCache({ maxEntries: 2, maxDurationMs: 60_000 })
    for (const name of ['a', 'b', 'a', 'c', 'a']) await ask(cache, name)
    assert.equal(made, 3)
    await ask(cache, 'b')
    assert.equal(made, 4)
    const none = new TokenCache({ maxEntries: 0, maxDurationMs: 60_000 })
    assert.deepEqual([await ask(none, 'a'), await ask(none, 'a')], [5, 6])
  })

  it('are not those of others, and a failure is not kept', async () => {
    const cache = new TokenCache({ maxEntries: 10, maxDurationMs: 60_000 })
    assert.notEqual(await ask(cache, ['a', 'b']), await ask(cache, 'a,b'))
    const failing = () => cache.get(['x'], user, signal, () => Promise.reject(new Error('no')))
    await assert.rejects(failing, /no/)
    assert.equal(await ask(cache, 'x'), 3)
  })
})
