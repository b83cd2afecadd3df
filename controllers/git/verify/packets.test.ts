import assert from 'node:assert/strict'
import { checkPackets } from './packets.ts'

describe('the packets of a keyring or signature', () => {
  const body = (bytes: number) => Buffer.alloc(bytes, 0xff)
  const packets: [string, Buffer][] = [
    ['of one byte', Buffer.concat([Buffer.of(0xc6, 3), body(3)])],
    ['of two bytes', Buffer.concat([Buffer.of(0xc6, 192, 8), body(200)])],
    ['of five bytes', Buffer.concat([Buffer.of(0xc6, 255, 0, 0, 1, 0), body(256)])],
    ['of old, of one byte', Buffer.concat([Buffer.of(0x98, 3), body(3)])],
    ['of old, of two bytes', Buffer.concat([Buffer.of(0x99, 1, 0), body(256)])],
    ['of old, of four bytes', Buffer.concat([Buffer.of(0x9a, 0, 0, 1, 0), body(256)])],
  ]
  for (const [what, packet] of packets) {
    it(`are counted by lengths ${what}, and are not to be more than allowed`, () => {
      checkPackets(Buffer.concat(Array<Buffer>(10).fill(packet)), 10)
      assert.throws(() => checkPackets(Buffer.concat(Array<Buffer>(11).fill(packet)), 10), /more than 10 packets/)
    })
  }

  it('are refused where their length is told later, or they are none', () => {
    const malformed = [[0xc6, 224, 1], [0x9b, 1], [0x00], [0x2d, 0x2d], [0xc6, 255, 0], [0x9a, 0, 0]]
    for (const bytes of malformed)
      assert.throws(() => checkPackets(Buffer.from(bytes), 10), /not in the form of OpenPGP/)
  })
})
