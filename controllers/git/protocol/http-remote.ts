import { messageOf } from '../../runtime/errors.ts'
import type { Access } from '../access/access.ts'
import { remoteEnvironment, type GitHome } from '../environment.ts'
import { gitFailure, sanitize } from '../failure.ts'
import { featuresOfV0, featuresOfV2, lineOf, ProtocolError, refOfV0, refOfV2 } from './advertisement.ts'
import type { Features, RemoteRef } from './advertisement.ts'
import { AnswerError, networkFailure, requestGit, type Body, type Endpoint } from './http.ts'
import { readPackets } from './packets.ts'
import { delimiterPacket, encodePacket, flushPacket, type Packet } from './pkt-line.ts'
import { defaultRefLimits, knowledgeLifetimeMs } from './remote.ts'
import type { GitConnection, RefLimits, RefQuery, Remote } from './remote.ts'

/** A repository over smart HTTP. Knows what the server can do, so that a poll is a single request. */
export class HttpRemote implements Remote {
  readonly url: string
  access: Access
  readonly #limits: RefLimits
  #known: { endpoint: Endpoint; features: Features; untilMs: number } | undefined
  #acceptedAtMs: number | undefined

  constructor(url: string, access: Access, limits: RefLimits = defaultRefLimits) {
    this.url = url
    this.access = access
    this.#limits = limits
  }

  get features(): Features | undefined {
    return this.#known?.features
  }

  async listRefs(query: RefQuery, signal: AbortSignal): Promise<RemoteRef[]> {
    const known = this.#known
    if (known?.features.version === 2 && performance.now() < known.untilMs) {
      try {
        return await this.#lsRefs(query, known.endpoint, known.features, signal)
      } catch (err) {
        // The server may have moved or lost what it could do; asked afresh it says so, or what is really wrong.
        if (!(err instanceof Error) || !(err.cause instanceof AnswerError)) throw err
        this.forget()
      }
    }
    return await this.#discover(query, signal)
  }

  async greet(withinMs: number, signal: AbortSignal): Promise<void> {
    if (this.#acceptedAtMs !== undefined && performance.now() - this.#acceptedAtMs <= withinMs) return
    await this.listRefs({ prefixes: ['HEAD'], keep: () => true, enough: 1 }, signal)
  }

  forget(): void {
    this.#known = undefined
    this.#acceptedAtMs = undefined
  }

  /** Git follows no redirects here: it goes where they have led us, if we have asked already. */
  connect(home: GitHome): Promise<GitConnection> {
    const endpoint = this.#known?.endpoint ?? { base: this.url, credentials: true }
    const env = remoteEnvironment(home, endpoint, this.access)
    return Promise.resolve({ url: endpoint.base, env, release: () => Promise.resolve() })
  }

  async #discover(query: RefQuery, signal: AbortSignal): Promise<RemoteRef[]> {
    const { url: shownUrl, access } = this
    const asked: Endpoint = { base: this.url, credentials: true }
    const { endpoint, body } = await requestGit({ shownUrl, endpoint: asked, access, signal })
    const answer = await this.#read(body, signal, (packets) => readAdvertisement(packets, query, this.#limits.maxRefs))
    this.#known = { endpoint, features: answer.features, untilMs: performance.now() + knowledgeLifetimeMs }
    if (answer.features.version === 0) return this.#accepted(answer.refs)
    return await this.#lsRefs(query, endpoint, answer.features, signal)
  }

  async #lsRefs(query: RefQuery, endpoint: Endpoint, features: Features, signal: AbortSignal): Promise<RemoteRef[]> {
    const { url: shownUrl, access } = this
    const body = lsRefsRequest(query, features)
    const response = await requestGit({ shownUrl, endpoint, access, body, signal })
    return this.#accepted(await this.#read(response.body, signal, (p) => readLsRefs(p, query, this.#limits.maxRefs)))
  }

  #accepted(refs: RemoteRef[]): RemoteRef[] {
    this.#acceptedAtMs = performance.now()
    return refs
  }

  async #read<R>(body: Body, signal: AbortSignal, read: (p: AsyncIterable<Packet>) => Promise<R>): Promise<R> {
    try {
      return await read(readPackets(body, this.#limits.maxAnswerBytes))
    } catch (err) {
      if (err instanceof ProtocolError || err instanceof RangeError) {
        const cause = new AnswerError('protocol', { cause: err })
        throw gitFailure(this.url, sanitize(messageOf(err), this.access.secrets), { cause })
      }
      throw networkFailure(this.url, err, this.access, signal)
    }
  }
}

function lsRefsRequest({ prefixes }: RefQuery, { agent }: Features): Buffer {
  return Buffer.concat([
    encodePacket('command=ls-refs'),
    ...(agent ? [encodePacket('agent=git/openflux')] : []),
    delimiterPacket,
    encodePacket('peel'),
    ...prefixes.map((prefix) => encodePacket(`ref-prefix ${prefix}`)),
    flushPacket,
  ])
}

async function readLsRefs(packets: AsyncIterable<Packet>, query: RefQuery, maxRefs: number): Promise<RemoteRef[]> {
  const refs: RemoteRef[] = []
  let count = 0
  let complete = false
  for await (const packet of packets) {
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

/** Tells what the server can do and, where it speaks the older protocol, which of its refs the query keeps. */
async function readAdvertisement(
  packets: AsyncIterable<Packet>,
  query: RefQuery,
  maxRefs: number,
): Promise<{ features: Features; refs: RemoteRef[] }> {
  const capabilities: string[] = []
  const older = new OlderAdvertisement(query, maxRefs)
  let version2 = false
  let complete = false
  for await (const packet of packets) {
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
    else if (!ref.name.endsWith('^{}') && this.#query.keep(ref.name)) this.#refs.push(ref)
    return false
  }

  result(): { features: Features; refs: RemoteRef[] } {
    // A repository without refs may say nothing at all but a flush.
    return { features: this.#features ?? featuresOfV0(''), refs: this.#refs }
  }
}
