import assert from 'node:assert/strict'
import { makeRandom } from '../../artifact/test-support.ts'
import { delimiterPacket, encodePacket, flushPacket, PacketDecoder, packetText, type Packet } from './pkt-line.ts'

function decode(chunks: Iterable<Buffer>): Packet[] {
  const decoder = new PacketDecoder()
  const packets: Packet[] = []
  for (const chunk of chunks) for (const packet of decoder.push(chunk)) packets.push(packet)
  decoder.end()
  return packets
}

function shown(packets: Packet[]): string[] {
  return packets.map((p) => (typeof p === 'string' ? `<${p}>` : p.toString('latin1')))
}

function* chopped(bytes: Buffer, size: () => number): Generator<Buffer> {
  for (let at = 0; at < bytes.length;) {
    const next = at + size()
    yield bytes.subarray(at, next)
    at = next
  }
}

describe('pkt-line', () => {
  it('counts its own length and ends text with a line feed', () => {
    assert.equal(encodePacket('command=ls-refs').toString(), '0014command=ls-refs\n')
    assert.equal(packetText(Buffer.from('a\n')), 'a')
    assert.throws(() => encodePacket('x'.repeat(70_000)), RangeError)
  })

  it('is read the same in one piece, byte by byte, and anything between', () => {
    const bytes = Buffer.concat([
      encodePacket('one'),
      delimiterPacket,
      encodePacket('x'.repeat(65_515)),
      Buffer.from('0004'),
      Buffer.from('0002'),
      flushPacket,
    ])
    const expected = ['one\n', '<delimiter>', `${'x'.repeat(65_515)}\n`, '', '<response-end>', '<flush>']
    for (const size of [1, 2, 3, 5, 4096, 65_520, bytes.length]) {
      assert.deepEqual(shown(decode(chopped(bytes, () => size))), expected, `in pieces of ${size}`)
    }
  })

  for (const [what, text] of [
    ['a length that is not hexadecimal', 'zzzz'],
    ['a length with a sign', '+005x'],
    ['the length 3', '0003'],
    ['a length over 65,520', 'fff1x'],
    ['an end within a length', '00'],
    ['an end within data', '0010abc'],
  ] as const) {
    it(`is refused with ${what}`, () => {
      for (const size of [1, 100]) assert.throws(() => decode(chopped(Buffer.from(text), () => size)), RangeError)
    })
  }

  it('is either read or refused, whatever comes, and never depends on how it is chopped', function () {
    this.timeout(60_000)
    const seed = Date.now() % 2 ** 32
    console.log(`        seed ${seed}`)
    const random = makeRandom(seed)
    for (let i = 0; i < 20_000; i++) {
      const bytes = hostileBytes(random)
      const whole = attempt(() => shown(decode([bytes])))
      const pieces = attempt(() => shown(decode(chopped(bytes, () => 1 + random(7)))))
      assert.deepEqual(pieces, whole, `input ${i}: ${bytes.toString('latin1').slice(0, 200)}`)
    }
  })
})

function attempt(work: () => string[]): string[] | string {
  try {
    return work()
  } catch (err) {
    assert.ok(err instanceof RangeError, String(err))
    return err.message
  }
}

/** Valid packets with a few bytes changed, cut or repeated. */
function hostileBytes(random: (below: number) => number): Buffer {
  const parts = Array.from({ length: random(6) }, () => {
    const kind = random(8)
    if (kind === 0) return flushPacket
    if (kind === 1) return delimiterPacket
    if (kind === 2) return Buffer.from(Array.from({ length: random(12) }, () => random(256)))
    if (kind === 3) return Buffer.from(random(65_536).toString(16).padStart(4, '0'))
    return encodePacket('y'.repeat(random(60)))
  })
  const bytes = Buffer.concat(parts)
  for (let changes = random(3); changes > 0 && bytes.length > 0; changes--) bytes[random(bytes.length)] = random(256)
  return bytes.subarray(0, bytes.length - (random(4) === 0 ? random(bytes.length + 1) : 0))
}
