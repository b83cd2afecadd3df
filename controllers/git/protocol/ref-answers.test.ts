import assert from 'node:assert/strict'
import { makeRandom } from '../../artifact/test-support.ts'
import { ProtocolError } from './advertisement.ts'
import { encodePacket, flushPacket, PacketDecoder, type Packet } from './pkt-line.ts'
import { readAdvertisement, readLsRefs } from './ref-answers.ts'
import type { RefQuery } from './remote.ts'

const oid = '0123456789abcdef0123456789abcdef01234567'
const maxRefs = 20
const everything: RefQuery = { prefixes: [], symrefs: true, keep: () => true }

/** What servers send, whole: version 2's capabilities, version 0's and 1's advertisement, an answer to `ls-refs`. */
const answers = [
  ['# service=git-upload-pack', '', 'version 2', 'agent=git/2.39', 'ls-refs=unborn', 'fetch=shallow filter', ''],
  ['# service=git-upload-pack', '', `${oid} HEAD\0symref=HEAD:refs/heads/main filter`, `${oid} refs/heads/main`, ''],
  ['version 1', `${oid} refs/tags/v1\0side-band-64k`, `${oid} refs/tags/v1^{}`, `shallow ${oid}`, ''],
  [`${oid} HEAD symref-target:refs/heads/main`, `${oid} refs/tags/v1 peeled:${oid}`, ''],
  ['unborn HEAD symref-target:refs/heads/main', ''],
  ['ERR access denied', ''],
]

function encode(lines: readonly string[]): Buffer {
  return Buffer.concat(lines.map((line) => (line === '' ? flushPacket : encodePacket(line))))
}

async function* packetsOf(bytes: Buffer): AsyncGenerator<Packet> {
  const decoder = new PacketDecoder()
  yield* decoder.push(bytes)
  decoder.end()
}

describe('what a server says of its refs', () => {
  it('is read in every version', async () => {
    const [v2, v0, v1, lsRefs] = answers.map(encode) as [Buffer, Buffer, Buffer, Buffer]
    const read = (bytes: Buffer) => readAdvertisement(packetsOf(bytes), everything, maxRefs)
    assert.deepEqual((await read(v2)).features, { version: 2, agent: true, filter: true })
    assert.deepEqual((await read(v0)).refs, [
      { name: 'HEAD', oid, symref: 'refs/heads/main' },
      { name: 'refs/heads/main', oid },
    ])
    assert.deepEqual((await read(v1)).refs, [{ name: 'refs/tags/v1', oid, peeled: oid }])
    assert.deepEqual(await readLsRefs(packetsOf(lsRefs), everything, maxRefs), [
      { name: 'HEAD', oid, symref: 'refs/heads/main' },
      { name: 'refs/tags/v1', oid, peeled: oid },
    ])
  })

  it('is either read or refused, whatever comes, and never more than is allowed', async function () {
    this.timeout(60_000)
    const seed = Date.now() % 2 ** 32
    console.log(`        seed ${seed}`)
    const random = makeRandom(seed)
    let read = 0
    for (let i = 0; i < 20_000; i++) {
      const bytes = hostileAnswer(random)
      try {
        const refs =
          random(2) === 0
            ? (await readAdvertisement(packetsOf(bytes), everything, maxRefs)).refs
            : await readLsRefs(packetsOf(bytes), everything, maxRefs)
        for (const ref of refs) assert.match(ref.oid + (ref.peeled ?? oid), /^[0-9a-f]{80}$/)
        assert.ok(refs.length <= maxRefs)
        read++
      } catch (err) {
        const expected = err instanceof ProtocolError || err instanceof RangeError
        assert.ok(expected, `input ${i}, ${JSON.stringify(bytes.toString('latin1').slice(0, 300))}: ${String(err)}`)
      }
    }
    assert.ok(read > 100 && read < 19_900, `${read} of 20,000 were read: the inputs show nothing`)
  })
})

/** Answers with lines left out, repeated, mixed with those of others, and with a few bytes changed. */
function hostileAnswer(random: (below: number) => number): Buffer {
  const lines = [...answers[random(answers.length)]!]
  for (let changes = random(3); changes > 0; changes--) {
    const other = answers[random(answers.length)]!
    const at = random(lines.length + 1)
    const kind = random(4)
    if (kind === 0) lines.splice(at, 1)
    else if (kind === 1) lines.splice(at, 0, other[random(other.length)]!)
    else if (kind === 2) lines.splice(at, 0, ...Array.from({ length: random(40) }, () => lines[at] ?? ''))
    else lines.splice(at, 0, 'x'.repeat(random(6000)))
  }
  const bytes = encode(lines)
  for (let changes = random(3); changes > 0 && bytes.length > 0; changes--) bytes[random(bytes.length)] = random(256)
  return bytes
}
