import type { FileBody } from './bodies.ts'
import { endOfArchive, headersOf, paddingOf, sharedFolders } from './tar-header.ts'

/** The bytes of a whole tar archive. */
export async function* tarStream(bodies: AsyncIterable<FileBody>): AsyncGenerator<Buffer> {
  let previous = ''
  for await (const { file, content } of bodies) {
    const headers = headersOf(file, sharedFolders(previous, file.path))
    previous = file.path
    if (Buffer.isBuffer(content)) {
      yield Buffer.concat([...headers, content, paddingOf(file)])
    } else {
      yield Buffer.concat(headers)
      yield* content
      yield paddingOf(file)
    }
  }
  yield endOfArchive
}
