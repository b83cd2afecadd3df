import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { listen } from './port.ts'

/** A TCP proxy between a client and a server on the loopback that can misbehave as networks do. */
export interface FaultProxy {
  port: number
  /** Connections accepted so far. */
  accepted(): number
  /** Existing connections carry nothing any more and are not closed: a cut cable, a firewall that forgot. New ones work. */
  freeze(): void
  /** Existing connections are reset. */
  reset(): void
  /** Passes on only this many more bytes to each existing client, then closes: a line cut in half. */
  truncate(bytes: number): void
  stop(): Promise<void>
}

interface Pair {
  client: Socket
  server: Socket
  /** Bytes that may still pass to the client. */
  left: number
  frozen: boolean
}

export async function startFaultProxy(targetPort: number): Promise<FaultProxy> {
  const pairs = new Set<Pair>()
  let accepted = 0
  const proxy = createServer((client) => {
    accepted++
    const server = connect(targetPort, '127.0.0.1')
    const pair: Pair = { client, server, left: Infinity, frozen: false }
    pairs.add(pair)
    const end = () => {
      if (pair.frozen) return // a cut cable tells nobody
      pairs.delete(pair)
      client.destroy()
      server.destroy()
    }
    for (const socket of [client, server]) socket.on('error', end).on('close', end)
    client.on('data', (chunk) => pair.frozen || server.write(chunk))
    server.on('data', (chunk: Buffer) => {
      if (pair.frozen) return
      client.write(chunk.subarray(0, Math.min(chunk.length, pair.left)))
      pair.left -= chunk.length
      if (pair.left <= 0) client.end(() => end())
    })
  })
  const port = await listen(proxy)
  const destroyAll = () => {
    for (const { client, server } of pairs) {
      client.destroy()
      server.destroy()
    }
    pairs.clear()
  }
  return {
    port,
    accepted: () => accepted,
    freeze: () => pairs.forEach((pair) => (pair.frozen = true)),
    reset: () => {
      for (const { client } of pairs) client.resetAndDestroy()
    },
    truncate: (bytes) => pairs.forEach((pair) => (pair.left = bytes)),
    stop: async () => {
      proxy.close()
      destroyAll()
      await once(proxy, 'close')
    },
  }
}
