import { makePacer } from '../../artifact/archive/pace.ts'
import { featuresOfV0, featuresOfV2, lineOf, ProtocolError, refOfV0, refOfV2 } from './advertisement.ts'
import type { Features, RemoteRef } from './advertisement.ts'
import { delimiterPacket, encodePacket, flushPacket, type Packet } from './pkt-line.ts'
import type { RefQuery } from './remote.ts'

/** The request `ls-refs` (gitprotocol-v2). */
export function lsRefsRequest({ prefixes, symrefs }: RefQuery, { agent }: Features): Buffer {
  return Buffer.concat([
    encodePacket('command=ls-refs'),
    ...(agent ? [encodePacket('agent=git/openflux')] : []),
    delimiterPacket,
    encodePacket('peel'),
    ...(symrefs ? [encodePacket('symrefs')] : []),
    ...prefixes.map((prefix) => encodePacket(`ref-prefix ${prefix}`)),
    flushPacket,
  ])
}

/** The refs of an answer to `ls-refs` that the query keeps. Throws a ProtocolError. */
export async function readLsRefs(
  packets: AsyncIterable<Packet>,
  query: RefQuery,
  maxRefs: number,
): Promise<RemoteRef[]> {
  const pace = makePacer() // what a query keeps may be decided by a pattern of the user's
  const refs: RemoteRef[] = []
  let count = 0
  let complete = false
  for await (const packet of packets) {
    await pace()
    const line = lineOf(packet)
    if (line === undefined) complete = true
    else if (++count > maxRefs) throw new ProtocolError(`more than ${maxRefs} refs`)
    else if (!line.startsWith('unborn ')) {
      const ref = refOfV2(line)
      if (query.keep(ref.name)) refs.push(ref)
      if (refs.length === query.enough) return refs
    }
  }
  if (!complete) throw new ProtocolError('the answer ends too early')
  return refs
}

/** Tells what the server can do and, where it speaks the older protocol, which of its refs the query keeps. Throws a ProtocolError. */
export async function readAdvertisement(
  packets: AsyncIterable<Packet>,
  query: RefQuery,
  maxRefs: number,
): Promise<{ features: Features; refs: RemoteRef[] }> {
  const pace = makePacer()
  const capabilities: string[] = []
  const older = new OlderAdvertisement(query, maxRefs)
  let version2 = false
  let complete = false
  for await (const packet of packets) {
    await pace()
    const line = lineOf(packet)
    // The flush behind the service line ends nothing yet.
    if (line === undefined) complete = version2 || older.started
    else if (version2) capabilities.push(line)
    else if (line === 'version 2') version2 = true
    else if (!/^# service=|^version 1$/.test(line) && older.add(line)) return older.result()
    if (capabilities.length > 100) throw new ProtocolError('too many capabilities')
  }
  if (version2 && complete) return { features: featuresOfV2(capabilities), refs: [] }
  if (version2 || (older.started && !complete)) throw new ProtocolError('the answer ends too early')
  return older.result()
}

/** Versions 0 and 1: all refs of the repository, the capabilities behind the first. */
class OlderAdvertisement {
  readonly #query: RefQuery
  readonly #maxRefs: number
  readonly #refs: RemoteRef[] = []
  #features: Features | undefined
  #count = 0

  constructor(query: RefQuery, maxRefs: number) {
    this.#query = query
    this.#maxRefs = maxRefs
  }

  get started(): boolean {
    return this.#features !== undefined
  }

  /** Returns true where no further line is needed. */
  add(line: string): boolean {
    if (++this.#count > this.#maxRefs) throw new ProtocolError(`more than ${this.#maxRefs} refs`)
    // Commits without parents, which a server whose own repository is shallow lists behind its refs.
    if (/^shallow [0-9a-f]{40}$/.test(line)) return false
    const [text = '', capabilities] = line.split('\0')
    this.#features ??= featuresOfV0(capabilities ?? '')
    const ref = refOfV0(text)
    const last = this.#refs.at(-1)
    if (last && ref.name === `${last.name}^{}`) last.peeled = ref.oid
    else if (this.#refs.length === this.#query.enough) return true
    else if (!ref.name.endsWith('^{}') && this.#query.keep(ref.name)) this.#refs.push(this.#withSymref(ref))
    return false
  }

  #withSymref(ref: RemoteRef): RemoteRef {
    const target = this.#query.symrefs ? this.#features?.symrefs?.get(ref.name) : undefined
    return target === undefined ? ref : { ...ref, symref: target }
  }

  result(): { features: Features; refs: RemoteRef[] } {
    // A repository without refs may say nothing at all but a flush.
    return { features: this.#features ?? featuresOfV0(''), refs: this.#refs }
  }
}
