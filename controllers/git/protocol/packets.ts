import { drain, type Body } from './http.ts'
import { PacketDecoder, type Packet } from './pkt-line.ts'

/**
 * The packets of an answer as they arrive. Throws a RangeError where it is longer than `maxBytes` or malformed. Reading may
 * stop early; the connection is kept where little is left.
 */
export async function* readPackets(body: Body, maxBytes: number): AsyncGenerator<Packet, void, undefined> {
  const decoder = new PacketDecoder()
  let received = 0
  let ended = false
  try {
    for await (const chunk of body.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      received += chunk.length
      if (received > maxBytes) throw new RangeError(`the answer is longer than ${maxBytes} bytes`)
      yield* decoder.push(chunk)
    }
    decoder.end()
    ended = true
  } finally {
    if (!ended) await drain(body)
  }
}
