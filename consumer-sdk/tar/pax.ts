import { ArchiveError } from './archive-error.ts'

/**
 * The records of a pax extended header (POSIX.1-2024, pax, "pax Extended Header"): `<length> <key>=<value>\n`, where the length counts the whole record in
 * bytes and a value may hold anything. Throws on whatever is malformed: a reader that skips it would see other names than the next one.
 */
export function parsePax(bytes: Buffer): Map<string, string> {
  const records = new Map<string, string>()
  for (let start = 0; start < bytes.length;) {
    const space = bytes.indexOf(0x20, start)
    const digits = bytes.toString('latin1', start, Math.min(space, start + 12))
    const end = start + Number(digits)
    const equals = bytes.indexOf(0x3d, space)
    const wellFormed = space > start && /^[1-9]\d*$/.test(digits) && end <= bytes.length && bytes[end - 1] === 0x0a
    if (!wellFormed || equals < space + 2 || equals >= end) throw new ArchiveError('malformed pax record')
    records.set(bytes.toString('utf8', space + 1, equals), bytes.toString('utf8', equals + 1, end - 1))
    start = end
  }
  return records
}
