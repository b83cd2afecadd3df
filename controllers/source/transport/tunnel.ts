import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { connect, type Socket } from 'node:net'
import type { Proxy } from './transport.ts'

/**
 * Opens a connection to a host by way of a proxy: CONNECT (RFC 9110 §9.3.6) or SOCKS5 (RFC 1928), where the proxy resolves the name. `signal` ends only the
 * attempt, not what came of it.
 */
export async function openTunnel(proxy: Proxy, host: string, port: number, signal: AbortSignal): Promise<Socket> {
  signal.throwIfAborted()
  const attempt = new AbortController()
  const stop = () => attempt.abort(signal.reason)
  signal.addEventListener('abort', stop, { once: true })
  try {
    const url = new URL(proxy.url)
    const open = url.protocol === 'socks5:' ? openSocks : openHttp
    return await open(url, proxy, host, port, attempt.signal)
  } finally {
    signal.removeEventListener('abort', stop)
  }
}

async function openHttp(
  url: URL,
  { username, password }: Proxy,
  host: string,
  port: number,
  signal: AbortSignal,
): Promise<Socket> {
  const target = `${host.includes(':') ? `[${host}]` : host}:${port}`
  const headers: Record<string, string> = { host: target }
  if (username || password) {
    headers['proxy-authorization'] = `Basic ${Buffer.from(`${username ?? ''}:${password ?? ''}`).toString('base64')}`
  }
  const make = url.protocol === 'https:' ? httpsRequest : httpRequest
  const request = make(url, { method: 'CONNECT', path: target, headers, signal, agent: false })
  request.end()
  const [response, socket, head] = (await once(request, 'connect')) as [{ statusCode: number }, Socket, Buffer]
  if (response.statusCode < 200 || response.statusCode > 299) {
    socket.destroy()
    throw new Error(`it answers ${response.statusCode}`)
  }
  if (head.length > 0) socket.unshift(head)
  return socket
}

const replies = [
  '',
  'general failure',
  'not allowed by its rules',
  'network unreachable',
  'host unreachable',
  'connection refused',
  'timed out',
  'command not supported',
  'kind of address not supported',
]

async function openSocks(
  url: URL,
  { username = '', password = '' }: Proxy,
  host: string,
  port: number,
  signal: AbortSignal,
): Promise<Socket> {
  const socket = connect({ host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port || 1080), signal })
  try {
    await once(socket, 'connect', { signal })
    await greetSocks(socket, username, password, signal)
    const portBytes = Buffer.from([port >> 8, port & 255])
    socket.write(Buffer.concat([Buffer.from([5, 1, 0, 3]), short(host), portBytes]))
    const [, reply = 1, , kind] = await take(socket, 4, signal)
    if (reply !== 0) throw new Error(replies[reply] ?? `it answers ${reply}`)
    // The address it uses, which nobody wants to know.
    const length = kind === 1 ? 4 : kind === 4 ? 16 : (await take(socket, 1, signal))[0]!
    await take(socket, length + 2, signal)
    return socket
  } catch (err) {
    socket.destroy()
    throw err
  }
}

async function greetSocks(socket: Socket, username: string, password: string, signal: AbortSignal): Promise<void> {
  const methods = username || password ? [0, 2] : [0]
  socket.write(Buffer.from([5, methods.length, ...methods]))
  const [version, method] = await take(socket, 2, signal)
  if (version !== 5) throw new Error('it does not speak SOCKS5')
  if (method === 2 && methods.includes(2)) {
    // RFC 1929
    socket.write(Buffer.concat([Buffer.from([1]), short(username), short(password)]))
    if ((await take(socket, 2, signal))[1] !== 0) throw new Error('it does not accept the credentials')
  } else if (method !== 0) throw new Error('it wants another kind of authentication')
}

/** A string behind its length, as both RFCs have it. */
function short(text: string): Buffer {
  const bytes = Buffer.from(text)
  if (bytes.length > 255) throw new Error('a name or password is longer than 255 bytes')
  return Buffer.concat([Buffer.from([bytes.length]), bytes])
}

/** Byte by byte: as long as something is left in it, a stream says at once that it can be read. */
async function take(socket: Socket, count: number, signal: AbortSignal): Promise<Buffer> {
  const taken: number[] = []
  while (taken.length < count) {
    const byte = socket.read(1) as Buffer | null
    if (byte) taken.push(byte[0]!)
    else if (socket.readableEnded) throw new Error('it has closed the connection')
    else await readableOrEnded(socket, signal)
  }
  return Buffer.from(taken)
}

async function readableOrEnded(socket: Socket, signal: AbortSignal): Promise<void> {
  const either = new AbortController()
  const options = { signal: AbortSignal.any([signal, either.signal]) }
  try {
    await Promise.race([once(socket, 'readable', options), once(socket, 'end', options)])
  } finally {
    either.abort() // takes the other listener away
  }
}
