import { createServer, type RequestListener, type Server } from 'node:http'
import { parseAddress } from '../../runtime/probes.ts'

/** Limits of a listening server. */
export interface ListenOptions {
  /** Connections beyond are closed at once. Defaults to 2048. */
  maxConnections?: number | undefined
  /** How long `close` lets running downloads go on. Defaults to 10 s. */
  graceMs?: number | undefined
}

/** A server that listens. */
export interface Listening {
  /** The real one where 0 was asked for. */
  port: number
  /** On this machine, without a trailing slash. */
  url: string
  /** Takes no more connections, lets running answers end within the grace period, then closes all. */
  close(): Promise<void>
}

const headersMs = 10_000
const requestMs = 30_000
const keepAliveMs = 15_000
/** No byte either way for so long: the other side is gone, or reads nothing. */
const silenceMs = 60_000
/** Enough to answer a URL of 20,000 characters with 414. */
const maxHeaderBytes = 32 * 1024
const idleCheckMs = 50

/** Serves on `[host]:port`, with limits for all that a client could keep open. Resolves when connections are accepted. */
export async function listen(
  handler: RequestListener,
  address: string,
  options: ListenOptions = {},
): Promise<Listening> {
  const { host, port } = parseAddress(address)
  const server = createServer(
    {
      headersTimeout: headersMs,
      requestTimeout: requestMs,
      keepAliveTimeout: keepAliveMs,
      connectionsCheckingInterval: 5000,
      maxHeaderSize: maxHeaderBytes,
    },
    handler,
  )
  server.timeout = silenceMs
  server.maxConnections = options.maxConnections ?? 2048
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ port, ...(host !== undefined && { host }) }, resolve)
  })
  const bound = server.address()
  if (typeof bound !== 'object' || !bound) throw new Error(`not listening on '${address}'`)
  const name = host === undefined || host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host
  return {
    port: bound.port,
    url: `http://${name.includes(':') ? `[${name}]` : name}:${bound.port}`,
    close: () => closeGracefully(server, options.graceMs ?? 10_000),
  }
}

async function closeGracefully(server: Server, graceMs: number): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  // A connection whose answer has ended would otherwise stay for its keep-alive time.
  const idle = setInterval(() => server.closeIdleConnections(), idleCheckMs)
  const end = setTimeout(() => server.closeAllConnections(), graceMs)
  await closed
  clearInterval(idle)
  clearTimeout(end)
}
