import type { Socket } from 'node:net'
import { type Duplex, pipeline } from 'node:stream'

/** What decides about a client of a SOCKS5 proxy, and makes its connections. */
export interface SocksHost {
  /** Undefined: nobody is asked for credentials. */
  auth?: { username: string; password: string } | undefined
  admits(username: string, password: string): boolean
  connect(host: string, port: number): Socket
}

const noAuthentication = 0
const usernamePassword = 2
const noAcceptableMethod = 0xff
const connectCommand = 1

/** Answers one client (RFC 1928, CONNECT only; RFC 1929) and then carries what it says. Throws where the client does not keep to it. */
export async function answerSocks(client: Socket, host: SocksHost): Promise<void> {
  const read = (bytes: number) => readBytes(client, bytes)
  const [, count] = await read(2)
  const offered = await read(count!)
  const method = host.auth ? usernamePassword : noAuthentication
  if (!offered.includes(method)) {
    host.admits('', '')
    return void client.end(Buffer.of(5, noAcceptableMethod))
  }
  client.write(Buffer.of(5, method))
  if (host.auth) {
    const [, length] = await read(2)
    const username = (await read(length!)).toString()
    const password = (await read((await read(1))[0]!)).toString()
    const admitted = host.admits(username, password)
    client.write(Buffer.of(1, admitted ? 0 : 1))
    if (!admitted) return void client.end()
  }
  const [, command, , type] = await read(4)
  const name = await readAddress(type!, read)
  const port = (await read(2)).readUInt16BE()
  if (command !== connectCommand) return void client.end(reply(7))
  const server = host.connect(name, port)
  server.once('error', () => client.end(reply(5)))
  server.once('connect', () => {
    client.write(reply(0))
    carry(client, server)
  })
}

/** Lets two connections carry what the other says until either breaks. */
export function carry(client: Duplex, server: Duplex): void {
  pipeline(client, server, client, () => undefined) // either side has gone; the other one hears of it
}

async function readAddress(type: number, read: (bytes: number) => Promise<Buffer>): Promise<string> {
  if (type === 1) return (await read(4)).join('.')
  if (type === 3) return (await read((await read(1))[0]!)).toString()
  const address = await read(16)
  return Array.from({ length: 8 }, (_, i) => address.readUInt16BE(i * 2).toString(16)).join(':')
}

/** A reply whose bound address nobody reads. */
function reply(code: number): Buffer {
  return Buffer.of(5, code, 0, 1, 0, 0, 0, 0, 0, 0)
}

/** Byte by byte: as long as something is left in it, a stream says at once that it can be read. */
async function readBytes(socket: Socket, bytes: number): Promise<Buffer> {
  const taken: number[] = []
  while (taken.length < bytes) {
    const byte = socket.read(1) as Buffer | null
    if (byte) taken.push(byte[0]!)
    else if (socket.readableEnded || socket.destroyed) throw new Error('the client has gone')
    else await readableOrGone(socket)
  }
  return Buffer.from(taken)
}

function readableOrGone(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      socket.off('readable', done).off('close', done).off('end', done)
      resolve()
    }
    socket.on('readable', done).on('close', done).on('end', done)
  })
}
