import type { Access } from '../access/access.ts'
import type { GitHome } from '../environment.ts'
import type { Features, RemoteRef } from './advertisement.ts'

/** Which refs are asked for. */
export interface RefQuery {
  /** Sent to servers that can narrow their answer; others send everything. */
  prefixes: readonly string[]
  /** Tells which of the refs that come are returned; the others cost no memory. */
  keep(name: string): boolean
  /** True: symbolic refs are to say what they point to. */
  symrefs?: boolean
  /** How many are enough: where they have been found, the rest is not read. */
  enough?: number
}

/** The most that is read of one answer. */
export interface RefLimits {
  maxAnswerBytes: number
  maxRefs: number
}

export const defaultRefLimits: RefLimits = { maxAnswerBytes: 64 * 1024 * 1024, maxRefs: 1_000_000 }

/** How long what a server has told of itself is taken for granted (ms). */
export const knowledgeLifetimeMs = 3_600_000

/** What native git needs to fetch from a remote. */
export interface GitConnection {
  /** For git's command line. */
  url: string
  /** Its whole environment, credentials included. */
  env: Record<string, string>
  /** To be called when the process has ended: files with credentials go. */
  release: () => Promise<void>
}

/**
 * One repository as one set of credentials sees it, whatever the protocol. Failures are ReconcileErrors: `AuthenticationFailed` where keys are at fault, else
 * `GitOperationFailed`.
 */
export interface Remote {
  /** Without credentials; what messages name. */
  readonly url: string
  /** May be replaced by one with the same key, when a token has been renewed. */
  access: Access
  /** What the server can do; undefined before the first request. */
  readonly features: Features | undefined
  /** The refs that `query` keeps, in the server's order. */
  listRefs(query: RefQuery, signal: AbortSignal): Promise<RemoteRef[]>
  /** Asks the server something small unless it has answered within so many ms: who it is, and whether it accepts the credentials. */
  greet(withinMs: number, signal: AbortSignal): Promise<void>
  /** To be called where the server turns out not to be what it was: the next question finds it again, from the URL on. */
  forget(): void
  /** Prepares for one fetch by native git. */
  connect(home: GitHome): Promise<GitConnection>
}
