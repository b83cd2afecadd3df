/** Throws an Error where a keyring or a signature has more than so many packets (RFC 9580 §4.2), or is neither. */
export function checkPackets(bytes: Buffer, maxPackets: number): void {
  let count = 0
  for (let at = 0; at < bytes.length; at += packetBytes(bytes, at))
    if (++count > maxPackets) throw new Error(`it holds more than ${maxPackets} packets`)
}

/** With its header. None of these is of a length that is told later. */
function packetBytes(bytes: Buffer, at: number): number {
  const tag = bytes[at]!
  const first = bytes[at + 1] ?? 0
  const isOld = (tag & 0xc0) === 0x80 && (tag & 3) !== 3
  const isNew = (tag & 0xc0) === 0xc0
  if (isNew && first < 192) return 2 + first
  if (isNew && first < 224) return 3 + (first - 192) * 256 + (bytes[at + 2] ?? 0) + 192
  const headerBytes = isNew ? 2 : 1
  const lengthBytes = isNew ? 4 : 1 << (tag & 3)
  const isKnown = isOld || (isNew && first === 255)
  if (!isKnown || at + headerBytes + lengthBytes > bytes.length) throw new Error('it is not in the form of OpenPGP')
  return headerBytes + lengthBytes + bytes.readUIntBE(at + headerBytes, lengthBytes)
}
