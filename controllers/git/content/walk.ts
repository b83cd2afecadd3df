import type { Readable } from 'node:stream'
import { ReconcileError } from '../../runtime/errors.ts'
import type { Lease } from '../mirror/mirror.ts'
import { ObjectReader } from './objects.ts'
import { explained, type Place } from './reading.ts'

/** What a folder of a commit says of one name. */
export interface Row {
  /** As git writes it: `40000` for a folder, `100644`, `100755`, `120000` for a symbolic link, `160000` for a submodule. */
  mode: string
  oid: string
}

const folderMode = '40000'
const maxFolderBytes = 8 * 1024 * 1024
const oidBytes = 20

/** Looks up paths below a folder of a commit through one process, folders that share a way only once. Must be closed. */
export class Walk {
  readonly #reader: ObjectReader
  /** The folders on the way to the last path, outermost first. */
  readonly #way: { oid: string; content: Buffer }[] = []

  constructor(place: Place, lease: Lease) {
    this.#reader = new ObjectReader(lease.repository, place.signal, (err) => explained(err, lease, place))
  }

  /** What is at the path; undefined where nothing is. `tree` is the id of the folder where it starts. */
  async find(tree: string, path: string): Promise<Row | undefined> {
    let row: Row | undefined = { mode: folderMode, oid: tree }
    for (const [depth, name] of path.split('/').entries()) {
      if (row?.mode !== folderMode) return undefined
      row = rowOf(await this.#folder(row.oid, depth), Buffer.from(name))
    }
    return row
  }

  async #folder(oid: string, depth: number): Promise<Buffer> {
    const known = this.#way[depth]
    if (known?.oid === oid) return known.content
    const content = await wholeOf(await this.#reader.read(oid, 'tree'))
    this.#way.splice(depth, Infinity, { oid, content })
    return content
  }

  async close(): Promise<void> {
    await this.#reader.close()
  }
}

async function wholeOf(body: Buffer | Readable): Promise<Buffer> {
  if (Buffer.isBuffer(body)) return body
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > maxFolderBytes)
      throw new ReconcileError('TooManyFiles', `a folder takes more than ${maxFolderBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** A tree object is rows of `<mode> <name>NUL<20 bytes of id>`, without anything between them. */
function rowOf(content: Buffer, name: Buffer): Row | undefined {
  for (let start = 0; start < content.length;) {
    const space = content.indexOf(0x20, start)
    const end = content.indexOf(0, space)
    if (space < 0 || end < 0) return undefined
    if (content.subarray(space + 1, end).equals(name)) {
      const mode = content.toString('latin1', start, space).replace(/^0+/, '') // which old tools have written
      return { mode, oid: content.toString('hex', end + 1, end + 1 + oidBytes) }
    }
    start = end + 1 + oidBytes
  }
  return undefined
}
