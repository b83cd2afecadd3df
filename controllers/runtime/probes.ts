import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { registry } from './metrics.ts'

/** A named question whose answer is empty when all is well, else what is missing. */
export type Check = () => string | undefined

/** A server that listens. `port` is the real one where 0 was asked for. */
export interface Listening {
  port: number
  close(): Promise<void>
}

/** `[host]:port` as Go's flags have it; an empty host means all interfaces. Throws on anything else. */
export function parseAddress(address: string): { host: string | undefined; port: number } {
  const match = /^(.*):(\d{1,5})$/.exec(address)
  const port = Number(match?.[2])
  if (!match || port > 65535) throw new Error(`'${address}' is not an address like :8080 or 127.0.0.1:8080`)
  return { host: match[1]?.replace(/^\[|\]$/g, '') || undefined, port }
}

/** Listens on `address`; resolves when connections are accepted. */
export async function listen(server: Server, address: string): Promise<Listening> {
  const { host, port } = parseAddress(address)
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ port, ...(host && { host }) }, resolve)
  })
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

/** `/healthz` says that the process lives; `/readyz` that every check passes, else which do not. */
export function serveProbes(address: string, checks: ReadonlyMap<string, Check>): Promise<Listening> {
  const server = createServer((req, res) => {
    if (req.url === '/healthz') return answer(res, 200, 'ok')
    if (req.url !== '/readyz') return answer(res, 404, 'not found')
    const missing = [...checks].flatMap(([name, check]) => {
      const why = check()
      return why ? [`${name}: ${why}`] : []
    })
    answer(res, missing.length ? 503 : 200, missing.join('\n') || 'ok')
  })
  return listen(server, address)
}

/** `/metrics` in the Prometheus text format. */
export function serveMetrics(address: string): Promise<Listening> {
  const server = createServer((req, res) => {
    if (req.url !== '/metrics') return answer(res, 404, 'not found')
    registry.metrics().then(
      (text) => answer(res, 200, text, registry.contentType),
      (err: unknown) => answer(res, 500, String(err)),
    )
  })
  return listen(server, address)
}

function answer(res: ServerResponse, status: number, text: string, type = 'text/plain; charset=utf-8'): void {
  res.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(text) })
  res.end(text)
}
