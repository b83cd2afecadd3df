import assert from 'node:assert/strict'
import { parsePointer } from './pointer.ts'

const oid = '4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393'
const text = `version https://git-lfs.github.com/spec/v1\noid sha256:${oid}\nsize 12345\n`

describe('an LFS pointer', () => {
  it('names hash and size', () => {
    assert.deepEqual(parsePointer(Buffer.from(text)), { oid, sizeBytes: 12345 })
    assert.deepEqual(parsePointer(Buffer.from(text.trimEnd())), { oid, sizeBytes: 12345 })
    assert.deepEqual(parsePointer(Buffer.from(text.replace('12345', '0'))), { oid, sizeBytes: 0 })
  })

  const others: [string, string][] = [
    ['nothing', ''],
    ['an older version', text.replace('spec/v1', 'spec/v0')],
    ['another site', text.replace('github', 'gitlab')],
    ['a short hash', text.replace(oid, oid.slice(1))],
    ['a hash in capitals', text.replace(oid, oid.toUpperCase())],
    ['another hash', text.replace('sha256', 'sha512')],
    ['a negative size', text.replace('12345', '-1')],
    ['a size with zeros before it', text.replace('12345', '012345')],
    ['a size in words', text.replace('12345', '1e5')],
    ['a size that no number holds', text.replace('12345', '9999999999999999')],
    ['lines of another order', `version https://git-lfs.github.com/spec/v1\nsize 12345\noid sha256:${oid}\n`],
    ['another line', `${text}note x\n`],
    ['an empty line', `${text}\n`],
    ['Windows line ends', text.replaceAll('\n', '\r\n')],
    ['something before it', ` ${text}`],
    ['a kilobyte', text + '\n'.repeat(1024)],
  ]
  for (const [what, other] of others) {
    it(`is not a file with ${what}`, () => assert.equal(parsePointer(Buffer.from(other)), undefined))
  }

  it('with extensions is refused', () => {
    const extended = text.replace('oid', `ext-0-foo sha256:${oid}\noid`)
    assert.throws(() => parsePointer(Buffer.from(extended)), /names extensions, which are not supported/)
  })
})
