/** One DER element (ITU-T X.690): tag, length, contents. */
function element(tag: number, ...contents: Buffer[]): Buffer {
  const body = Buffer.concat(contents)
  return Buffer.concat([Buffer.from([tag]), lengthOf(body), body])
}

function lengthOf({ length }: Buffer): Buffer {
  if (length < 0x80) return Buffer.from([length])
  if (length < 0x100) return Buffer.from([0x81, length])
  if (length < 0x10000) return Buffer.from([0x82, length >> 8, length & 0xff])
  throw new RangeError(`a DER element of ${length} bytes`)
}

export const sequence = (...parts: Buffer[]) => element(0x30, ...parts)
export const set = (...parts: Buffer[]) => element(0x31, ...parts)
export const boolean = (value: boolean) => element(0x01, Buffer.from([value ? 0xff : 0]))
export const octetString = (bytes: Buffer) => element(0x04, bytes)
export const utf8String = (text: string) => element(0x0c, Buffer.from(text))
/** `[number]`, constructed: the element within keeps its own tag. */
export const explicit = (number: number, part: Buffer) => element(0xa0 | number, part)
/** `[number]`, primitive: the tag stands in place of the element's own. */
export const implicit = (number: number, bytes: Buffer) => element(0x80 | number, bytes)

/** A positive INTEGER from big-endian bytes. */
export function integer(bytes: Buffer): Buffer {
  const negative = (bytes[0] ?? 0) >= 0x80
  return element(0x02, negative ? Buffer.concat([Buffer.of(0), bytes]) : bytes)
}

/** A BIT STRING whose last `unusedBits` do not count. */
export function bitString(bytes: Buffer, unusedBits = 0): Buffer {
  return element(0x03, Buffer.of(unusedBits), bytes)
}

/** An OBJECT IDENTIFIER from its dotted form. */
export function objectIdentifier(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  return element(0x06, Buffer.from([first * 40 + second, ...rest.flatMap(base128)]))
}

function base128(arc: number): number[] {
  const digits = [arc & 0x7f]
  for (let left = arc >> 7; left > 0; left >>= 7) digits.unshift(0x80 | (left & 0x7f))
  return digits
}

/** A UTCTime, which holds for the years 1950 to 2049 (RFC 5280, 4.1.2.5.1). */
export function utcTime(date: Date): Buffer {
  const digits = date.toISOString().replace(/\.\d+/, '').replace(/[-:T]/g, '')
  return element(0x17, Buffer.from(digits.slice(2)))
}
