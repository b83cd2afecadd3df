import assert from 'node:assert/strict'
import { ObjectMemory } from './object-memory.ts'

describe('the memory of small objects', () => {
  const { signal } = new AbortController()

  it('keeps no more than the bytes of an object, whatever they are a piece of', async () => {
    const memory = new ObjectMemory()
    const block = Buffer.from('a commit, and what else was read at that time')
    await memory.read('key', signal, () => Promise.resolve(block.subarray(0, 8)))
    const kept = memory.get('key')
    assert.deepEqual([kept?.toString(), kept?.buffer.byteLength], ['a commit', 8])
  })

  it('forgets what was not used for longest beyond 16 MiB, and keeps nothing that is large', async () => {
    const memory = new ObjectMemory()
    const put = (key: string, bytes: number) =>
      memory.read(key, signal, () => Promise.resolve(Buffer.alloc(bytes, key)))
    await put('large', 64 * 1024 + 1)
    assert.equal(memory.get('large'), undefined)
    for (let n = 0; n < 256; n++) await put(`key ${n}`, 64 * 1024)
    assert.ok(memory.get('key 0')) // and so it is the youngest again
    await put('one more', 1)
    assert.equal(memory.get('key 1'), undefined)
    for (const key of ['key 0', 'key 2', 'one more']) assert.ok(memory.get(key), key)
  })
})
