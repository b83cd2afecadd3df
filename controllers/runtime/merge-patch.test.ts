import assert from 'node:assert/strict'
import { mergePatch } from './merge-patch.ts'

/** The definition of RFC 7386 section 2, written down as the RFC has it. */
function apply(target: unknown, patch: unknown): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch
  const result: Record<string, unknown> =
    typeof target === 'object' && target !== null && !Array.isArray(target) ? { ...target } : {}
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key]
    else result[key] = apply(result[key], value)
  }
  return result
}

describe('merge patch', () => {
  it('is undefined where nothing changed, whatever the order of keys', () => {
    assert.equal(mergePatch({ a: 1, b: { c: [1, { d: 2 }] } }, { b: { c: [1, { d: 2 }] }, a: 1 }), undefined)
  })

  it('removes what is missing or undefined', () => {
    assert.deepEqual(mergePatch({ a: 1, b: 2 }, { a: 1, b: undefined }), { b: null })
    assert.deepEqual(mergePatch({ a: { x: '1', y: '2' } }, { a: { x: '1' } }), { a: { y: null } })
  })

  it('replaces arrays whole', () => {
    assert.deepEqual(mergePatch({ a: [1, 2] }, { a: [1] }), { a: [1] })
  })

  it('turns before into after for random documents', () => {
    const seed = Date.now()
    console.log(`      seed ${seed}`)
    let state = seed >>> 0
    const random = (n: number) => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % n
    const value = (depth: number): unknown => {
      const kind = random(depth > 2 ? 2 : 4)
      if (kind === 0) return random(3)
      if (kind === 1) return 'abc'[random(3)]
      if (kind === 2) return Array.from({ length: random(3) }, () => value(depth + 1))
      return Object.fromEntries(Array.from({ length: random(4) }, () => ['klmn'[random(4)], value(depth + 1)]))
    }
    for (let i = 0; i < 5000; i++) {
      const before = { root: value(0), more: value(0) }
      const after = { root: value(0), ...(random(2) && { more: value(0) }) }
      const patch = mergePatch(before, after)
      assert.deepEqual(patch === undefined ? before : apply(before, patch), after)
    }
  })
})
