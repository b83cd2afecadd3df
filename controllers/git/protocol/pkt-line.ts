/** One packet of Git's wire format (gitprotocol-common): data, or one of the three markers. */
export type Packet = Buffer | 'flush' | 'delimiter' | 'response-end'

export const maxPacketBytes = 65520
const markers = ['flush', 'delimiter', 'response-end'] as const

/** Prefixes `text` with its length; a line feed is added, as the specification asks of text. */
export function encodePacket(text: string): Buffer {
  const body = Buffer.from(`${text}\n`)
  if (body.length + 4 > maxPacketBytes) throw new RangeError(`packet longer than ${maxPacketBytes} bytes`)
  return Buffer.concat([Buffer.from((body.length + 4).toString(16).padStart(4, '0')), body])
}

export const flushPacket = Buffer.from('0000')
export const delimiterPacket = Buffer.from('0001')

/**
 * Cuts a byte stream into packets, however it is chopped. Holds at most one packet (65,520 bytes).
 * `push` and `end` throw a RangeError on a length that is not one, or where the stream ends within a packet.
 */
export class PacketDecoder {
  #held = Buffer.allocUnsafe(0)
  #filled = 0

  /** To be called where the stream ends. */
  end(): void {
    if (this.#filled > 0) throw new RangeError('the stream ends within a packet')
  }

  /** The packets that `chunk` completes. Those that lie within it share its memory. */
  *push(chunk: Buffer): Generator<Packet, void, undefined> {
    let rest = chunk
    while (rest.length > 0) {
      if (this.#filled === 0 && rest.length >= 4) {
        const size = packetLength(rest)
        if (rest.length >= size) {
          yield packetOf(rest.subarray(0, Math.max(size, 4)))
          rest = rest.subarray(Math.max(size, 4))
          continue
        }
      }
      rest = rest.subarray(this.#fill(rest))
      const complete = this.#complete()
      if (complete) yield complete
    }
  }

  /** Copies what the packet in progress still needs; returns how much of `rest` that was. */
  #fill(rest: Buffer): number {
    if (this.#held.length === 0) this.#held = Buffer.allocUnsafe(maxPacketBytes)
    const needed = this.#filled < 4 ? 4 : packetLength(this.#held)
    const count = Math.min(rest.length, needed - this.#filled)
    rest.copy(this.#held, this.#filled, 0, count)
    this.#filled += count
    return count
  }

  #complete(): Packet | undefined {
    if (this.#filled < 4 || this.#filled < packetLength(this.#held)) return undefined
    const packet = packetOf(Buffer.from(this.#held.subarray(0, this.#filled)))
    this.#filled = 0
    return packet
  }
}

function packetLength(bytes: Buffer): number {
  const digits = bytes.toString('latin1', 0, 4)
  if (!/^[0-9a-fA-F]{4}$/.test(digits))
    throw new RangeError(`packet length ${JSON.stringify(digits)} is not hexadecimal`)
  const size = Number.parseInt(digits, 16)
  if (size === 3 || size > maxPacketBytes) throw new RangeError(`packet length ${size} is not allowed`)
  return size
}

function packetOf(bytes: Buffer): Packet {
  return markers[packetLength(bytes)] ?? bytes.subarray(4)
}

/** The text of a data packet without the line feed at its end. */
export function packetText(packet: Buffer): string {
  const end = packet.at(-1) === 0x0a ? packet.length - 1 : packet.length
  return packet.toString('utf8', 0, end)
}
