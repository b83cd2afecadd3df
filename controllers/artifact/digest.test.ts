import assert from 'node:assert/strict'
import { digestAlgorithms, makeHasher, parseDigest } from './digest.ts'

/** Of the three bytes `abc`: FIPS 180-2 and the test vectors of BLAKE3. */
const abc = {
  sha256: 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  sha384: 'cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7',
  sha512:
    'ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f',
  blake3: '6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85',
}

describe('digest', () => {
  for (const algorithm of digestAlgorithms) {
    it(`hashes with ${algorithm}, piece by piece`, async () => {
      const hasher = await makeHasher(algorithm)
      hasher.update(Buffer.from('a'))
      hasher.update(Buffer.from('bc'))
      assert.equal(hasher.digest(), `${algorithm}:${abc[algorithm]}`)
    })

    it(`takes a ${algorithm} digest apart`, () => {
      assert.deepEqual(parseDigest(`${algorithm}:${abc[algorithm]}`), { algorithm, hex: abc[algorithm] })
    })
  }

  const malformed = {
    'no algorithm': abc.sha256,
    'an empty algorithm': `:${abc.sha256}`,
    'an unknown algorithm': `md5:${abc.sha256}`,
    'a name that every object has': `constructor:${abc.sha256}`,
    'a short hash': `sha256:${abc.sha256.slice(1)}`,
    'a long hash': `sha256:${abc.sha256}0`,
    'the hash of another algorithm': `sha512:${abc.sha256}`,
    'upper case': `sha256:${abc.sha256.toUpperCase()}`,
    'what is not hex': `sha256:${'g'.repeat(64)}`,
    'a line break at the end': `sha256:${abc.sha256.slice(1)}\n`,
    nothing: '',
  }
  for (const [name, text] of Object.entries(malformed)) {
    it(`refuses ${name}`, () => {
      assert.throws(() => parseDigest(text), { reason: 'InvalidDigest', message: /^invalid digest ".*": / })
    })
  }
})
