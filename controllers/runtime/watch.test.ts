import assert from 'node:assert/strict'
import { ApiError } from './client.ts'
import { readWatch, SilentWatchError } from './watch.ts'

const event = (name: string, resourceVersion = '1') =>
  `${JSON.stringify({ type: 'ADDED', object: { metadata: { name, resourceVersion } } })}\n`

async function* body(...chunks: (string | Buffer)[]): AsyncGenerator<Buffer> {
  for (const chunk of chunks) yield Buffer.from(chunk)
}

async function names(chunks: AsyncIterable<Buffer>): Promise<string[]> {
  const found: string[] = []
  for await (const { object } of readWatch(chunks, 60_000, new AbortController())) found.push(object.metadata.name)
  return found
}

describe('reading a watch', () => {
  it('finds the same events however the bytes are cut', async () => {
    const all = Buffer.from(event('a') + event('ü') + event('c'))
    for (let size = 1; size < all.length; size++) {
      const chunks: Buffer[] = []
      for (let at = 0; at < all.length; at += size) chunks.push(all.subarray(at, at + size))
      assert.deepEqual(await names(body(...chunks)), ['a', 'ü', 'c'])
    }
  })

  it('ends without an error when the server ends it between two events', async () => {
    assert.deepEqual(await names(body()), [])
  })

  it('throws on half a line instead of taking it for the end', async () => {
    await assert.rejects(names(body(event('a'), event('b').slice(0, 20))), /within a line/)
  })

  it('throws on an event without a version, since nothing could resume from it', async () => {
    await assert.rejects(names(body('{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n')), /resource version/)
  })

  it('throws what an ERROR event says', async () => {
    const gone = '{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}\n'
    await assert.rejects(names(body(event('a'), gone)), (err) => err instanceof ApiError && err.status === 410)
  })

  it('throws SilentWatchError when no byte comes for the given time', async () => {
    const abort = new AbortController()
    async function* silent(): AsyncGenerator<Buffer> {
      yield Buffer.from(event('a'))
      await new Promise((_, reject) => abort.signal.addEventListener('abort', () => reject(new Error('aborted'))))
    }
    const read = async () => {
      for await (const _ of readWatch(silent(), 20, abort)) continue
    }
    await assert.rejects(read(), SilentWatchError)
  })
})
