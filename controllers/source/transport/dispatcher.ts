import { createHash } from 'node:crypto'
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls'
import { Agent, buildConnector, type Dispatcher, ProxyAgent } from 'undici'
import { messageOf } from '../../runtime/errors.ts'
import type { Proxy, TlsOptions, Transport } from './transport.ts'
import { openTunnel } from './tunnel.ts'

/** The longest that a server may take to begin its answer, and between two pieces of it. */
export const idleTimeoutMs = 60_000
const connectTimeoutMs = 30_000

/** Sets of connections that are kept; each differs from the others in trust, certificate or proxy, and may take 1.3 MB for what it trusts. */
const maxDispatchers = 64

/** HTTP/1.1 alone: a server of HTTP/2 whose stream is cancelled as it is opened can end this process (undici 8.12, Node 26.10). */
const http1 = { allowH2: false }

const limits = {
  ...http1,
  connections: 16,
  connectTimeout: connectTimeoutMs,
  headersTimeout: idleTimeoutMs,
  bodyTimeout: idleTimeoutMs,
  keepAliveTimeout: 75_000,
  keepAliveMaxTimeout: 600_000,
}

/** In the order of their last use. */
const dispatchers: Map<string, Dispatcher> = new Map()
const keys: WeakMap<Transport, string> = new WeakMap()
let roots: readonly string[] | undefined
let usualContext: SecureContext | undefined

/**
 * The connections for a transport, shared by all who have an equal one, so that a request finds one that is already open. An idle connection is closed after
 * 75 s. Requests pass `idleTimeoutMs` as their timeouts: not every proxy's connections know them.
 */
export function dispatcherFor(transport: Transport): Dispatcher {
  const key = transportKey(transport)
  const dispatcher = dispatchers.get(key) ?? makeDispatcher(transport)
  dispatchers.delete(key)
  dispatchers.set(key, dispatcher)
  const [oldest] = dispatchers.keys()
  if (dispatchers.size > maxDispatchers && oldest !== undefined) {
    void dispatchers.get(oldest)!.close() // when its requests have ended
    dispatchers.delete(oldest)
  }
  return dispatcher
}

/** Equal for transports that are; '' for the usual one. Irreversible. */
export function transportKey(transport: Transport): string {
  const { tls, proxy } = transport
  if (!tls && !proxy) return ''
  let key = keys.get(transport)
  if (key === undefined) {
    const parts = [tls?.ca, tls?.cert, tls?.key, proxy?.url, proxy?.username, proxy?.password]
    key = createHash('sha256').update(JSON.stringify(parts)).digest('hex')
    keys.set(transport, key)
  }
  return key
}

/** The authorities that are always trusted, in PEM: Node's own, those of the system, and NODE_EXTRA_CA_CERTS. */
export function trustedRoots(): readonly string[] {
  roots ??= [...new Set([...getCACertificates('default'), ...getCACertificates('system')])]
  return roots
}

function makeDispatcher({ tls, proxy }: Transport): Dispatcher {
  const secureContext = secureContextOf(tls)
  if (!proxy) return new Agent({ ...limits, connect: { ...http1, secureContext, timeout: connectTimeoutMs } })
  // The client certificate is for the server, not for the proxy.
  const proxyTls = {
    ...http1,
    secureContext: tls?.cert ? secureContextOf(tls.ca ? { ca: tls.ca } : {}) : secureContext,
  }
  const requestTls = { ...http1, secureContext }
  if (proxy.url.startsWith('socks5:')) return new Agent({ ...limits, connect: socksConnector(proxy, secureContext) })
  const token = tokenOf(proxy)
  return new ProxyAgent({ ...limits, uri: proxy.url, ...(token ? { token } : {}), requestTls, proxyTls })
}

/** undici's own SOCKS5 client reaches no https server by its address, and keeps no connection for long. */
function socksConnector(proxy: Proxy, secureContext: SecureContext): buildConnector.connector {
  const secure = buildConnector({ ...http1, secureContext, timeout: connectTimeoutMs })
  return (target, callback) => {
    const isSecure = target.protocol === 'https:'
    const host = target.hostname.replace(/^\[|\]$/g, '')
    const port = Number(target.port) || (isSecure ? 443 : 80)
    openTunnel(proxy, host, port, AbortSignal.timeout(connectTimeoutMs)).then(
      (httpSocket) => (isSecure ? secure({ ...target, httpSocket }, callback) : callback(null, httpSocket)),
      (err: unknown) => callback(new Error(`SOCKS5 proxy: ${messageOf(err)}`, { cause: err }), null),
    )
  }
}

/** Made once for all connections: with so many authorities it takes some 15 ms. */
function secureContextOf({ ca, cert, key }: TlsOptions = {}): SecureContext {
  if (!ca && !cert) return (usualContext ??= createSecureContext({ ca: [...trustedRoots()] }))
  return createSecureContext({
    ca: ca ? [...trustedRoots(), ca] : [...trustedRoots()],
    ...(cert && key ? { cert, key } : {}),
  })
}

function tokenOf({ username, password = '' }: Proxy): string | undefined {
  if (!username) return undefined
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
}
