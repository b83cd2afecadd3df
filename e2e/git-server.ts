import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http'
import { createServer as createTlsServer, type ServerOptions } from 'node:https'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { killBackend, relay, startBackend, type Backend } from './git-backend.ts'
import { makeRepository, type Repository } from './git-repository.ts'
import type { Credential } from './tools/certificates.ts'

export { makeRepository, type Change, type Repository } from './git-repository.ts'

/** How the server treats requests from now on. All fields may be changed while it runs. */
export interface Behaviour {
  /** Every request must carry these. */
  auth?: { user: string; password: string } | { bearer: string } | undefined
  /** False: the client's wish for protocol version 2 is not heard. */
  protocolV2: boolean
  /** False: fetches cannot leave out files, and only advertised commits can be asked for by id (in version 0). */
  modern: boolean
  /** Requests whose path ends like this are accepted and never answered. */
  hang?: 'info/refs' | 'git-upload-pack' | undefined
  /** Answers trickle: one byte, then so many ms of nothing. */
  dripMs?: number | undefined
  /** Answers to `git-upload-pack` that hold a pack end after so many bytes. */
  truncateBytes?: number | undefined
  /** Answers stall for good after about so many bytes. */
  stallBytes?: number | undefined
  /** Requests are answered by this status and header; `*` in the URL stands for path and query. */
  redirect?: { status: number; location: string } | undefined
  /** 429 with this Retry-After. */
  tooManyRequests?: string | undefined
  /** Connections are cut. */
  down: boolean
}

/** What has passed since the start or the last `reset`. Bytes are those on the wire, headers included. */
export interface Counters {
  requests: number
  bytesIn: number
  bytesOut: number
  /** `METHOD path?query` of each request, in order. */
  paths: string[]
}

export interface GitServer {
  /** `http://127.0.0.1:<port>`, or `https:` with TLS. A repository `<root>/app.git` is at `<url>/app.git`. */
  url: string
  /** The folder whose repositories are served. */
  root: string
  behaviour: Behaviour
  /** The git processes that answer requests right now. */
  running(): number
  requests(): Counters
  reset(): void
  /** Calls back for each new connection. */
  onConnection(listener: () => void): void
  /** Makes a bare repository `<root>/<name>`. */
  repository(name: string): Promise<Repository>
  /** Ends everything; removes the root where it was made here. */
  stop(): Promise<void>
}

export interface GitServerOptions extends Partial<Behaviour> {
  /** Serves https with a certificate; with `clientCa` every client must have one of that authority. All PEM. */
  tls?: Credential & { clientCa?: string }
  /** Defaults to a new temporary folder. */
  root?: string
  /** Repositories elsewhere, by the first component of the path under which they are served: `{ 'app.git': '/src/app/.git' }`. */
  repositories?: Record<string, string>
}

/** Serves Git repositories over smart HTTP on loopback with the real `git http-backend`; read-only. */
export async function startGitServer(options: GitServerOptions = {}): Promise<GitServer> {
  const { root: given, repositories = {}, tls, ...overrides } = options
  const root = given ?? (await mkdtemp(join(tmpdir(), 'git-server-')))
  const behaviour: Behaviour = { protocolV2: true, modern: true, down: false, ...overrides }
  const wire = new Wire()
  const running = new Set<Backend>()
  const folderOf = (path: string) => {
    const [, first = '', rest = ''] = /^\/([^/]*)(.*)$/s.exec(path) ?? []
    return { folder: Object.hasOwn(repositories, first) ? repositories[first]! : join(root, first), rest }
  }
  const listener: RequestListener = (request, response) => {
    wire.paths.push(`${request.method} ${request.url}`)
    void answer(request, response, behaviour, (path) => startBackend(folderOf(path), request, behaviour, running))
  }
  const server = tls ? createTlsServer(tlsOptions(tls), listener) : createServer(listener)
  server.on('connection', (socket) => wire.add(socket))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `${tls ? 'https' : 'http'}://127.0.0.1:${portOf(server.address())}`,
    root,
    behaviour,
    running: () => running.size,
    requests: () => wire.counters(),
    reset: () => wire.reset(),
    onConnection: (listener) => void server.on('connection', listener),
    repository: (name) => makeRepository(join(root, name)),
    stop: async () => {
      for (const child of running) killBackend(child)
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeAllConnections()
      await closed
      if (!given) await rm(root, { recursive: true, force: true })
    },
  }
}

function tlsOptions({ certificate: cert, key, clientCa: ca }: NonNullable<GitServerOptions['tls']>): ServerOptions {
  return { cert, key, ...(ca ? { ca, requestCert: true, rejectUnauthorized: true } : {}) }
}

function portOf(address: ReturnType<Server['address']>): number {
  if (address === null || typeof address === 'string') throw new Error('not listening on a port')
  return address.port
}

/** Counts the bytes of all connections. */
class Wire {
  paths: string[] = []
  #sockets = new Set<Socket>()
  #past = { bytesIn: 0, bytesOut: 0 }

  add(socket: Socket): void {
    this.#sockets.add(socket)
    socket.on('error', () => undefined) // a client that goes away is no event here
    socket.on('close', () => {
      this.#sockets.delete(socket)
      this.#past.bytesIn += socket.bytesRead
      this.#past.bytesOut += socket.bytesWritten
    })
  }

  counters(): Counters {
    let { bytesIn, bytesOut } = this.#past
    for (const socket of this.#sockets) {
      bytesIn += socket.bytesRead
      bytesOut += socket.bytesWritten
    }
    return { requests: this.paths.length, bytesIn, bytesOut, paths: [...this.paths] }
  }

  reset(): void {
    const { bytesIn, bytesOut } = this.counters()
    this.#past.bytesIn -= bytesIn
    this.#past.bytesOut -= bytesOut
    this.paths = []
  }
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  behaviour: Behaviour,
  backend: (path: string) => Backend,
): Promise<void> {
  const url = request.url ?? '/'
  const path = decoded(url.split('?')[0]!)
  if (behaviour.down) return void request.socket.destroy()
  if (behaviour.hang && path.endsWith(behaviour.hang)) return
  const refuse = (status: number, headers: Record<string, string> = {}) =>
    void response.writeHead(status, headers).end()
  if (behaviour.tooManyRequests !== undefined) return refuse(429, { 'retry-after': behaviour.tooManyRequests })
  if (behaviour.redirect) {
    return refuse(behaviour.redirect.status, { location: behaviour.redirect.location.replace('*', url) })
  }
  if (!authorized(request, behaviour)) return refuse(401, { 'www-authenticate': 'Basic realm="git"' })
  if (path.split('/').some((component) => component === '.' || component === '..')) return refuse(404)
  const child = backend(path)
  try {
    await relay(child, response, behaviour)
  } catch {
    response.destroy() // either side has gone; the other one hears of it
  } finally {
    killBackend(child)
  }
}

/** What cannot be decoded is nobody's name. */
function decoded(path: string): string {
  try {
    return decodeURIComponent(path)
  } catch {
    return '/..'
  }
}

function authorized(request: IncomingMessage, { auth }: Behaviour): boolean {
  if (!auth) return true
  const { authorization } = request.headers
  if ('bearer' in auth) return authorization === `Bearer ${auth.bearer}`
  return authorization === `Basic ${Buffer.from(`${auth.user}:${auth.password}`).toString('base64')}`
}
