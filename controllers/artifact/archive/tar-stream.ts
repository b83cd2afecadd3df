import { Header, Pax } from 'tar'
import type { FileBody } from './bodies.ts'

const blockBytes = 512
const maxOctalSize = 0o77777777777
const epoch = new Date(0)

/**
 * The bytes of a tar archive (POSIX.1-2001 pax) that depend on the files alone: no owner, no time, folders 0750 before what is in them, files
 * 0600 or 0700. A piece never holds bytes of two files, so that a compressor can tell where one begins.
 */
export async function* tarStream(bodies: AsyncIterable<FileBody>): AsyncGenerator<Buffer> {
  let folder: string[] = []
  for await (const { file, content } of bodies) {
    const parents = file.path.split('/').slice(0, -1)
    const headers: Buffer[] = []
    for (let depth = sharedLength(folder, parents); depth < parents.length; depth++) {
      headers.push(...headerOf(parents.slice(0, depth + 1).join('/'), 'Directory', 0o750, 0))
    }
    folder = parents
    headers.push(...headerOf(file.path, 'File', file.mode & 0o111 ? 0o700 : 0o600, file.sizeBytes))
    const padding = Buffer.alloc(-file.sizeBytes & (blockBytes - 1))
    if (Buffer.isBuffer(content)) {
      yield Buffer.concat([...headers, content, padding])
    } else {
      yield Buffer.concat(headers)
      yield* content
      yield padding
    }
  }
  yield Buffer.alloc(2 * blockBytes)
}

function sharedLength(a: string[], b: string[]): number {
  let length = 0
  while (length < a.length && a[length] === b[length]) length++
  return length
}

function headerOf(path: string, type: 'File' | 'Directory', mode: number, size: number): Buffer[] {
  const fields = { path, type, mode, size, uid: 0, gid: 0, uname: '', gname: '', mtime: epoch }
  const block = Buffer.alloc(blockBytes)
  const needsPax = new Header(fields).encode(block)
  if (!needsPax) return [block]
  // Only what a plain header cannot say: every further record would be one more thing that could differ.
  return [new Pax({ path, ...(size > maxOctalSize && { size }) }).encode(), block]
}
