import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request, type IncomingHttpHeaders } from 'node:http'
import { pino } from 'pino'
import { listen, type Listening, type ListenOptions } from './listen.ts'
import { makeFileServer } from './server.ts'
import type { Storage } from '../storage/storage.ts'
import type { StoredArtifact } from '../stored.ts'
import { entriesOf, randomBytes } from '../test-support.ts'
import { folder, makeStorage, type StorageFixture } from '../storage/test-storage.ts'

/** What came back. */
export interface Answer {
  status: number
  headers: IncomingHttpHeaders
  body: Buffer
}

/** A storage that is served, and what its owner would be asked and told. */
export interface ServerFixture extends StorageFixture {
  server: Listening
  /** Express alone. */
  express: Listening
  state: { ready: boolean; expected: string[]; current: string | undefined }
  damaged: string[]
  get(path: string, headers?: Record<string, string>, method?: string): Promise<Answer>
}

/** Asks for a path as it is: no client tidies it up. */
export async function send(
  url: string,
  path: string,
  headers: Record<string, string> = {},
  method = 'GET',
): Promise<Answer> {
  const sent = request(url, { path, headers: { connection: 'close', ...headers }, method }).end()
  const [response] = await once(sent, 'response')
  const chunks: Buffer[] = []
  for await (const chunk of response) chunks.push(chunk)
  return { status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks) }
}

/** Serves a new storage on loopback; closed with `await using`. For tests. */
export async function makeServer(
  { memoryBytes, ...limits }: ListenOptions & { memoryBytes?: number } = {},
  wrap = (storage: Storage): Pick<Storage, 'look' | 'open' | 'find'> => storage,
): Promise<ServerFixture> {
  const f = await makeStorage({ retentionRecords: 10 })
  const state: ServerFixture['state'] = { ready: true, expected: [], current: undefined }
  const damaged: string[] = []
  const files = makeFileServer({
    storage: wrap(f.storage),
    state: { ready: () => state.ready, expects: (path) => state.expected.includes(path), current: () => state.current },
    onDamage: (path) => damaged.push(path),
    log: pino({ level: 'silent' }),
    memoryBytes,
  })
  const server = await files.listen('127.0.0.1:0', { graceMs: 5000, ...limits })
  const express = await listen(files.app, '127.0.0.1:0', limits)
  return {
    ...f,
    server,
    express,
    state,
    damaged,
    get: (path, headers, method) => send(server.url, path, headers, method),
    async [Symbol.asyncDispose]() {
      await Promise.all([server.close(), express.close()])
      await f[Symbol.asyncDispose]()
    },
  }
}

/** Stores an archive of about `bytes` bytes that cannot be compressed. */
export async function storeLarge(f: StorageFixture, into = folder, bytes = 8_000_000): Promise<StoredArtifact> {
  const content = randomBytes(1, bytes)
  return (await f.storage.store(into, 'large', entriesOf({ content }), { fileName: 'large' })).artifact
}

/** What the storage itself gives for a path. */
export async function bytesOf(f: StorageFixture, path: string): Promise<Buffer> {
  const opened = await f.storage.open(path)
  assert.ok(typeof opened === 'object', path)
  const bytes = await opened.handle.readFile()
  await opened.handle.close()
  return bytes
}
