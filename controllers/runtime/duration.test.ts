import assert from 'node:assert/strict'
import { durationOf, parseDuration } from './duration.ts'
import { StalledError } from './errors.ts'

describe('duration', () => {
  const good: [string, number][] = [
    ['60s', 60_000],
    ['1m30s', 90_000],
    ['1.5h', 5_400_000],
    ['500ms', 500],
    ['5m0s', 300_000],
    ['0s', 0],
    ['1h1m1s1ms', 3_661_001],
  ]
  for (const [text, ms] of good) {
    it(`reads ${text} as ${ms} ms`, () => assert.equal(parseDuration(text), ms))
  }

  for (const text of ['', '1', '1d', '-1s', '5m 0s', '1.s', '.5s', 's', '1S', '1e3s', `${'1s'.repeat(40)}`, '1s\n']) {
    it(`refuses ${JSON.stringify(text.slice(0, 20))}`, () => {
      assert.equal(parseDuration(text), undefined)
      assert.throws(
        () => durationOf('spec.interval', text),
        (err) => err instanceof StalledError && /spec\.interval/.test(err.message),
      )
    })
  }
})
