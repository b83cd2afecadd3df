import { once } from 'node:events'
import { createServer as createHttpServer, request, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect, createServer, type Socket } from 'node:net'
import { pipeline, type Duplex } from 'node:stream'
import { createServer as createTlsServer } from 'node:tls'
import type { Credential } from './certificates.ts'
import { listen } from './port.ts'
import { answerSocks, carry } from './socks.ts'

/** What has passed since the start or the last `reset`. Bytes are those between client and proxy, what is said to the proxy itself included. */
export interface ProxyCounters {
  /** Connections of clients. */
  connections: number
  /** Those that were turned away for their credentials. */
  refused: number
  /** `host:port` of each connection or request that was passed on, in order, as the client wrote it. */
  targets: string[]
  /** From clients. */
  bytesIn: number
  /** To clients. */
  bytesOut: number
}

/** A forward proxy on the loopback that speaks HTTP (CONNECT and absolute-form, RFC 9110) and SOCKS5 (RFC 1928) on one port. */
export interface ForwardProxy {
  port: number
  /** `http://127.0.0.1:<port>`, or `https:` where it has a certificate. */
  url: string
  /** `socks5://127.0.0.1:<port>` */
  socksUrl: string
  counters(): ProxyCounters
  reset(): void
  stop(): Promise<void>
}

export interface ForwardProxyOptions {
  /** Every client must give these: `Proxy-Authorization: Basic`, or RFC 1929 over SOCKS5. */
  auth?: { username: string; password: string }
  /** Clients speak TLS with the proxy. */
  tls?: Credential
  /** Where a name that clients ask for leads, for names that no resolver knows. */
  hosts?: Record<string, string>
}

export async function startForwardProxy(options: ForwardProxyOptions = {}): Promise<ForwardProxy> {
  const state = new ProxyState(options)
  const http = createHttpServer((incoming, response) => forward(state, incoming, response))
  http.on('connect', (incoming, client, head) => tunnel(state, incoming, client, head))
  http.on('clientError', (_, socket) => socket.destroy())
  const accept = (client: Socket) => {
    state.add(client)
    client.once('data', (first: Buffer) => {
      client.pause()
      client.unshift(first)
      if (first[0] === 5) void answerSocks(client, state).catch(() => client.destroy())
      else {
        http.emit('connection', client)
        client.resume()
      }
    })
  }
  const { tls } = options
  const server = tls ? createTlsServer({ cert: tls.certificate, key: tls.key }, accept) : createServer(accept)
  const port = await listen(server)
  return {
    port,
    url: `${tls ? 'https' : 'http'}://127.0.0.1:${port}`,
    socksUrl: `socks5://127.0.0.1:${port}`,
    counters: () => state.counters(),
    reset: () => state.reset(),
    stop: async () => {
      server.close()
      state.destroyAll()
      await once(server, 'close')
    },
  }
}

class ProxyState {
  readonly auth: ForwardProxyOptions['auth']
  readonly #hosts: Record<string, string>
  readonly #clients: Set<Socket> = new Set()
  readonly #servers: Set<Socket> = new Set()
  #counters = noCounters()

  constructor({ auth, hosts = {} }: ForwardProxyOptions) {
    this.auth = auth
    this.#hosts = hosts
  }

  add(client: Socket): void {
    this.#counters.connections++
    this.#clients.add(client)
    client.setMaxListeners(30) // both directions of two pipes, and TLS
    client.on('error', () => undefined) // a client that goes away is no event here
    client.on('close', () => {
      this.#clients.delete(client)
      this.#counters.bytesIn += client.bytesRead
      this.#counters.bytesOut += client.bytesWritten
    })
  }

  /** Whether these are the right credentials; if not, it counts as a refusal. */
  admits(username: string, password: string): boolean {
    const admitted = !this.auth || (username === this.auth.username && password === this.auth.password)
    if (!admitted) this.#counters.refused++
    return admitted
  }

  /** Notes the target and opens a connection to it. */
  connect(host: string, port: number): Socket {
    const server = connect(port, this.resolve(host, port))
    this.#servers.add(server)
    server.on('error', () => undefined) // whoever pipes hears of it
    server.on('close', () => this.#servers.delete(server))
    return server
  }

  resolve(host: string, port: number): string {
    this.#counters.targets.push(`${host}:${port}`)
    return this.#hosts[host] ?? host
  }

  counters(): ProxyCounters {
    const { targets, ...numbers } = this.#counters
    const sum = { ...numbers, targets: [...targets] }
    for (const client of this.#clients) {
      sum.bytesIn += client.bytesRead
      sum.bytesOut += client.bytesWritten
    }
    return sum
  }

  reset(): void {
    this.#counters = noCounters()
    // What open connections have carried so far does not count any more.
    const { bytesIn, bytesOut } = this.counters()
    this.#counters.bytesIn -= bytesIn
    this.#counters.bytesOut -= bytesOut
  }

  destroyAll(): void {
    for (const socket of [...this.#clients, ...this.#servers]) socket.destroy()
  }
}

function noCounters(): ProxyCounters {
  return { connections: 0, refused: 0, targets: [], bytesIn: 0, bytesOut: 0 }
}

function admitsHttp(state: ProxyState, { headers }: IncomingMessage): boolean {
  const encoded = /^Basic (.*)$/.exec(headers['proxy-authorization'] ?? '')?.[1] ?? ''
  const [, username = '', password = ''] = /^([^:]*):(.*)$/s.exec(Buffer.from(encoded, 'base64').toString()) ?? []
  return state.admits(username, password)
}

/** CONNECT */
function tunnel(state: ProxyState, incoming: IncomingMessage, client: Duplex, head: Buffer): void {
  client.on('error', () => undefined) // as above
  if (!admitsHttp(state, incoming)) {
    client.end('HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="proxy"\r\n\r\n')
    return
  }
  const { hostname, port } = new URL(`tunnel://${incoming.url}`)
  const server = state.connect(hostname, Number(port))
  server.once('connect', () => {
    client.write('HTTP/1.1 200 Connection established\r\n\r\n')
    if (head.length > 0) server.write(head)
    carry(client, server)
  })
  server.once('error', () => client.end('HTTP/1.1 502 Bad Gateway\r\n\r\n'))
}

/** A request in absolute-form. */
function forward(state: ProxyState, incoming: IncomingMessage, response: ServerResponse): void {
  if (!admitsHttp(state, incoming)) {
    response.writeHead(407, { 'proxy-authenticate': 'Basic realm="proxy"' }).end()
    return
  }
  if (!URL.canParse(incoming.url ?? '')) return void response.writeHead(400).end()
  const url = new URL(incoming.url!)
  const { 'proxy-authorization': _, 'proxy-connection': __, connection: ___, ...headers } = incoming.headers
  const port = Number(url.port || 80)
  const target = { host: state.resolve(url.hostname, port), port, path: url.pathname + url.search }
  const outgoing = request({ ...target, method: incoming.method, headers, agent: false }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers)
    pipeline(answer, response, () => undefined) // either side has gone; the other one hears of it
  })
  outgoing.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()))
  response.on('close', () => outgoing.destroy())
  incoming.pipe(outgoing)
}
