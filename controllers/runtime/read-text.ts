import type { Dispatcher } from 'undici'

/** The largest answer read into memory; one object is at most 1.5 MiB in etcd, a page at most 500 of them. */
const maxBodyBytes = 512 * 1024 * 1024

/** The text of an answer. Throws where it is larger than any answer of the API server may be. */
export async function readText(body: Dispatcher.ResponseData['body']): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > maxBodyBytes) throw new Error(`the API server's answer passes ${maxBodyBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}
