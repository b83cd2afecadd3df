import { drain, type Body } from './http.ts'
import { PacketDecoder, type Packet } from './pkt-line.ts'

/**
 * The packets of an answer as they arrive. Throws a RangeError where it is longer than `maxBytes` or malformed. Reading may
 * stop early; the connection is kept where little is left.
 */
export async function* readPackets(body: Body, maxBytes: number): AsyncGenerator<Packet, void, undefined> {
  let ended = false
  try {
    yield* decodePackets(body.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>, maxBytes)
    ended = true
  } finally {
    if (!ended) await drain(body)
  }
}

/** The packets of any stream of bytes. Throws a RangeError where it is longer than `maxBytes` or malformed. */
export async function* decodePackets(
  chunks: AsyncIterable<Buffer>,
  maxBytes: number,
): AsyncGenerator<Packet, void, undefined> {
  const decoder = new PacketDecoder()
  let received = 0
  for await (const chunk of chunks) {
    received += chunk.length
    if (received > maxBytes) throw new RangeError(`the answer is longer than ${maxBytes} bytes`)
    yield* decoder.push(chunk)
  }
  decoder.end()
}
