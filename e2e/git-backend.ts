import { spawn, type ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { basename, dirname } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { isolated } from './git-repository.ts'

/** A `git http-backend` that answers one request. */
export type Backend = ChildProcessByStdio<Writable, Readable, null>

/** What a backend pretends not to know, and what goes wrong with its answer; the fields are those of the server's behaviour. */
export interface BackendFaults {
  protocolV2: boolean
  modern: boolean
  dripMs?: number | undefined
  truncateBytes?: number | undefined
  stallBytes?: number | undefined
}

/** Starts the backend for a repository; `rest` is what follows its name in the request's path. It is in `running` until it has ended. */
export function startBackend(
  { folder, rest }: { folder: string; rest: string },
  request: IncomingMessage,
  { protocolV2, modern }: BackendFaults,
  running: Set<Backend>,
): Backend {
  const version = request.headers['git-protocol']
  const child = spawn('git', ['http-backend'], {
    stdio: ['pipe', 'pipe', 'ignore'],
    detached: true,
    env: {
      PATH: process.env['PATH'],
      ...isolated,
      ...config({
        'uploadpack.allowFilter': String(modern),
        'uploadpack.allowAnySHA1InWant': String(modern),
        'safe.directory': '*',
      }),
      GIT_PROJECT_ROOT: dirname(folder),
      GIT_HTTP_EXPORT_ALL: '1',
      PATH_INFO: `/${basename(folder)}${rest}`,
      REQUEST_METHOD: request.method,
      QUERY_STRING: (request.url ?? '').split('?')[1] ?? '',
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      ...(request.headers['content-encoding'] ? { HTTP_CONTENT_ENCODING: request.headers['content-encoding'] } : {}),
      ...(protocolV2 && typeof version === 'string' ? { GIT_PROTOCOL: version } : {}),
    },
  })
  running.add(child)
  child.on('close', () => running.delete(child))
  child.on('error', () => running.delete(child))
  child.stdin.on('error', () => undefined) // the backend does not always read all of a request
  request.pipe(child.stdin)
  return child
}

/** Ends a backend and the git processes that work for it. */
export function killBackend(child: Backend): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    // it has just ended
  }
}

function config(values: Record<string, string>): Record<string, string> {
  const pairs = Object.entries(values)
  const settings = pairs.flatMap(([key, value], i) => [
    [`GIT_CONFIG_KEY_${i}`, key],
    [`GIT_CONFIG_VALUE_${i}`, value],
  ])
  return { GIT_CONFIG_COUNT: String(pairs.length), ...Object.fromEntries(settings) }
}

/** Turns CGI output into an HTTP answer, with the faults that the behaviour asks for. */
export async function relay(child: Backend, response: ServerResponse, faults: BackendFaults): Promise<void> {
  const gone = new AbortController()
  response.on('close', () => {
    killBackend(child)
    gone.abort()
  })
  let head = Buffer.alloc(0)
  let sent = 0
  for await (const chunk of buffers(child.stdout)) {
    let body = chunk
    if (!response.headersSent) {
      head = Buffer.concat([head, chunk])
      const end = head.indexOf('\r\n\r\n')
      if (end < 0) continue
      writeHead(response, head.toString('latin1', 0, end))
      body = head.subarray(end + 4)
    }
    sent += body.length
    if (faults.truncateBytes !== undefined && sent > faults.truncateBytes) {
      response.write(body.subarray(0, Math.max(0, body.length - (sent - faults.truncateBytes))))
      await delay(20) // so that what was sent arrives before the connection breaks
      throw new Error('truncated')
    }
    await write(response, body, faults, gone.signal)
    if (faults.stallBytes !== undefined && sent > faults.stallBytes) await once(gone.signal, 'abort')
  }
  response.end()
}

/** Streams of processes carry Buffers, which their type does not say. */
function buffers(stream: Readable): AsyncIterable<Buffer> {
  return stream
}

async function write(
  response: ServerResponse,
  body: Buffer,
  { dripMs }: BackendFaults,
  gone: AbortSignal,
): Promise<void> {
  if (dripMs === undefined) {
    if (!response.write(body)) await once(response, 'drain', { signal: gone })
    return
  }
  for (let i = 0; i < body.length && !response.destroyed; i++) {
    response.write(body.subarray(i, i + 1))
    await delay(dripMs)
  }
}

function writeHead(response: ServerResponse, text: string): void {
  const headers = text.split('\r\n').map((line) => /^([^:]+):\s*(.*)$/s.exec(line)!)
  const status = Number.parseInt(headers.find((h) => /^status$/i.test(h[1]!))?.[2] ?? '200', 10)
  response.writeHead(
    status,
    Object.fromEntries(headers.filter((h) => !/^status$/i.test(h[1]!)).map((h) => [h[1]!, h[2]!])),
  )
}
