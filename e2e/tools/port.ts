import { once } from 'node:events'
import { createServer, type Server } from 'node:net'

/** Lets a server (also of http, https or tls) listen on a free port of the loopback and resolves with the port. */
export async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new TypeError('a server without a port')
  return address.port
}

/** A loopback port that was free a moment ago, for programs that cannot choose one and tell it; another may take it. */
export async function freePort(): Promise<number> {
  const server = createServer()
  const port = await listen(server)
  server.close()
  await once(server, 'close')
  return port
}
