import { messageOf } from '../../runtime/errors.ts'
import type { Access } from '../access/access.ts'
import type { GitHome } from '../environment.ts'
import { gitFailure, sanitize } from '../failure.ts'
import { ProtocolError } from './advertisement.ts'
import type { Features, RemoteRef } from './advertisement.ts'
import { AnswerError, networkFailure, requestGit, transportTo, type Body, type Endpoint } from './http.ts'
import { refuseWhileAskedToWait } from './host-waits.ts'
import { httpConnection } from './http-connection.ts'
import { readPackets } from './packets.ts'
import type { Packet } from './pkt-line.ts'
import { lsRefsRequest, readAdvertisement, readLsRefs } from './ref-answers.ts'
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
  async connect(home: GitHome): Promise<GitConnection> {
    const endpoint = this.#known?.endpoint ?? { base: this.url, credentials: true }
    const failed = (why: string, retryAfterMs: number) => gitFailure(this.url, why, { retryAfterMs })
    refuseWhileAskedToWait(endpoint.base, transportTo(endpoint, this.access), failed)
    return await httpConnection(home, endpoint, this.access)
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
