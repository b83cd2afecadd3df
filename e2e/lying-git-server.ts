import { once } from 'node:events'
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { listen } from './tools/port.ts'

/**
 * What is untrue in the answers, told by the first component of the path: `refs`: refs without end, in version 0. `want=<commit>`: a sound pack of another commit. `checksum`: a pack
 * whose checksum is wrong. `progress`: progress without end, with escape sequences. `error`: a last word with escape sequences that repeats the client's credentials.
 */
type Lie = 'refs' | 'want' | 'checksum' | 'progress' | 'error'

/** A Git server that is not to be trusted, in front of a sound one. */
export interface LyingGitServer {
  /** `http://127.0.0.1:<port>`; the repository `app.git` of the sound server is at `<url>/<lie>/app.git`. */
  url: string
  stop(): Promise<void>
}

/** Starts one in front of a server at `behind`, with which it shares nothing but the answers that it alters. */
export async function startLyingGitServer(behind: string): Promise<LyingGitServer> {
  const server = createServer((asked, answer) => {
    answer.on('error', () => undefined) // a client that goes away is no event here
    respond(behind, asked, answer).catch(() => answer.destroy())
  })
  const port = await listen(server)
  return {
    url: `http://127.0.0.1:${port}`,
    stop: async () => {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}

async function respond(behind: string, asked: IncomingMessage, answer: ServerResponse): Promise<void> {
  const [, lie = '', commit = '', path = ''] = /^\/(\w+)=?(\w*)(\/.*)$/.exec(asked.url ?? '') ?? []
  const body = await buffer(asked)
  const isFetch = body.includes('command=fetch')
  if (lie === ('refs' satisfies Lie) && path.includes('/info/refs')) {
    answer.writeHead(200, { 'content-type': 'application/x-git-upload-pack-advertisement' })
    return await pipeline(Readable.from(refs()), answer)
  }
  if (isFetch && (lie === 'progress' || lie === 'error')) {
    answer.writeHead(200, { 'content-type': 'application/x-git-upload-pack-result' })
    answer.write(packet('packfile\n'))
    if (lie === 'progress') return await pipeline(Readable.from(progress()), answer)
    const [, credentials = ''] = asked.headers.authorization?.split(' ') ?? []
    return void answer.end(packet(`\u0003${escapes}you said ${Buffer.from(credentials, 'base64').toString()}\n`))
  }
  const wanted = isFetch && lie === 'want' ? body.toString('latin1').replace(/want \w{40}/, `want ${commit}`) : body
  const { head, content } = await pass(behind + path, asked, Buffer.from(wanted as string, 'latin1'))
  if (isFetch && lie === 'checksum') content[content.length - flushBytes - 1]! ^= 1
  answer.writeHead(head.statusCode!, head.headers).end(content)
}

const flushBytes = 4
/** A colour, and the title of the window. */
const escapes = '\u001b[31m\u001b]0;owned\u0007'

async function pass(url: string, { method, headers }: IncomingMessage, body: Buffer) {
  const passed = request(url, { method, headers: { ...headers, connection: 'close' } })
  passed.end(body)
  const [head] = (await once(passed, 'response')) as [IncomingMessage]
  return { head, content: await buffer(head) }
}

function* refs(): Generator<Buffer> {
  yield Buffer.concat([packet('# service=git-upload-pack\n'), Buffer.from('0000')])
  yield packet(`${'1'.repeat(40)} HEAD\0shallow\n`)
  for (let at = 0; ; at += 1_000) {
    yield Buffer.concat(
      Array.from({ length: 1_000 }, (_, i) => packet(`${'1'.repeat(40)} refs/heads/${'x'.repeat(4_000)}${at + i}\n`)),
    )
  }
}

function* progress(): Generator<Buffer> {
  for (;;) yield packet(`\u0002${escapes}${'Counting objects, '.repeat(50)}\r`)
}

function packet(text: string): Buffer {
  return Buffer.from((Buffer.byteLength(text) + 4).toString(16).padStart(4, '0') + text)
}
