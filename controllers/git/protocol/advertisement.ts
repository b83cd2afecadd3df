import type { Packet } from './pkt-line.ts'
import { packetText } from './pkt-line.ts'

/** A ref as the server has it. */
export interface RemoteRef {
  name: string
  /** What it points to: 40 hexadecimal digits. */
  oid: string
  /** The commit behind an annotated tag. */
  peeled?: string
  /** The ref that a symbolic one stands for, where that was asked for and the server tells. */
  symref?: string
}

/** What a server can do, as far as it matters here. */
export interface Features {
  version: 0 | 2
  /** Whether `ls-refs` and `fetch` take an agent. */
  agent: boolean
  /** Whether a fetch may leave out files and folders. */
  filter: boolean
  /** Symbolic refs that version 0 tells of, by name. */
  symrefs?: ReadonlyMap<string, string>
}

/** The server's own refusal (an `ERR` packet) or a breach of the protocol. */
export class ProtocolError extends Error {}

/** The text of a data packet; throws a ProtocolError when it is the server's refusal. */
export function lineOf(packet: Packet): string | undefined {
  if (typeof packet === 'string') return undefined
  const line = packetText(packet)
  if (line.startsWith('ERR ')) throw new ProtocolError(`remote error: ${line.slice(4)}`)
  return line
}

/** The capabilities that follow the line `version 2` (gitprotocol-v2). */
export function featuresOfV2(lines: readonly string[]): Features {
  const capabilities = new Map(lines.map((line) => splitOnce(line, '=')))
  checkObjectFormat(capabilities.get('object-format'))
  if (!capabilities.has('ls-refs')) throw new ProtocolError('the server does not offer ls-refs')
  return {
    version: 2,
    agent: capabilities.has('agent'),
    filter: (capabilities.get('fetch') ?? '').split(' ').includes('filter'),
  }
}

/** The capabilities behind the NUL of the first ref (gitprotocol-pack). */
export function featuresOfV0(text: string): Features {
  const words = text.split(' ')
  checkObjectFormat(words.find((w) => w.startsWith('object-format='))?.slice('object-format='.length))
  const symrefs = words.filter((w) => w.startsWith('symref=')).map((w) => splitOnce(w.slice('symref='.length), ':'))
  return { version: 0, agent: false, filter: words.includes('filter'), symrefs: new Map(symrefs) }
}

/** A line of `ls-refs`: `<oid> <name>[ symref-target:<name>][ peeled:<oid>]`. */
export function refOfV2(line: string): RemoteRef {
  const [oid = '', name = '', ...attributes] = line.split(' ')
  const valueOf = (key: string) => attributes.find((a) => a.startsWith(key))?.slice(key.length)
  const peeled = valueOf('peeled:')
  const symref = valueOf('symref-target:')
  return {
    name: checkName(name),
    oid: checkOid(oid),
    ...(peeled !== undefined && { peeled: checkOid(peeled) }),
    ...(symref !== undefined && { symref: checkName(symref) }),
  }
}

/** A line of the older advertisement: `<oid> <name>`, where the name of a peeled tag ends with `^{}`. */
export function refOfV0(line: string): RemoteRef {
  const [oid, name] = splitOnce(line, ' ')
  return { name: checkName(name), oid: checkOid(oid) }
}

function checkOid(oid: string): string {
  if (!/^[0-9a-f]{40}$/.test(oid)) throw new ProtocolError('malformed ref advertisement')
  return oid
}

function checkName(name: string): string {
  if (name === '' || name.length > 4096) throw new ProtocolError('malformed ref advertisement')
  return name
}

function checkObjectFormat(format: string | undefined): void {
  if (format !== undefined && format !== 'sha1') throw new ProtocolError('only SHA-1 repositories are supported')
}

function splitOnce(text: string, at: string): [string, string] {
  const index = text.indexOf(at)
  return index < 0 ? [text, ''] : [text.slice(0, index), text.slice(index + 1)]
}
