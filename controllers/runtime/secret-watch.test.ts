import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { absentDigest, digestOf } from './secret-watch.ts'

describe('the digest of a Secret', () => {
  const make = (data: Record<string, string>) => ({ metadata: { name: 'x' }, data })

  it('is equal for equal data, in whatever order, and no other', () => {
    const digest = digestOf(make({ a: 'MQ==', b: 'Mg==' }))
    assert.equal(digestOf(make({ b: 'Mg==', a: 'MQ==' })), digest)
    const others = [
      make({ a: 'MQ==' }),
      make({ a: 'MQ==', b: 'MQ==' }),
      make({}),
      { metadata: { name: 'x' } },
      undefined,
    ]
    for (const other of others) assert.notEqual(digestOf(other), digest)
    assert.equal(digestOf(undefined), absentDigest)
    assert.notEqual(digestOf(make({})), absentDigest)
  })

  it('cannot be told from the data alone', () => {
    const data = { password: 'c2VjcmV0' }
    const digest = digestOf(make(data))
    for (const text of ['secret', 'c2VjcmV0', JSON.stringify(data), JSON.stringify(Object.entries(data))])
      assert.notEqual(createHash('sha256').update(text).digest('base64'), digest)
  })
})
