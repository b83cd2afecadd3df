import type { Readable } from 'node:stream'
import { makePacer, type Pace } from '../../artifact/archive/pace.ts'
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
/** Of all folders on the way to a path: they are in memory at once. */
const maxWayBytes = 16 * 1024 * 1024
const oidBytes = 20

interface Folder {
  oid: string
  content: Buffer
  /** Where the row of a name begins. A folder may have 300,000 of them, and be asked for a thousand. */
  rows: ReadonlyMap<string, number>
}

/** Looks up paths below a folder of a commit through one process, folders that share a way only once. Must be closed. */
export class Walk {
  readonly #reader: ObjectReader
  readonly #pace: Pace
  /** The folders on the way to the last path, outermost first. */
  readonly #way: Folder[] = []

  constructor(place: Place, lease: Lease) {
    this.#pace = makePacer(place.signal)
    this.#reader = new ObjectReader(lease.repository, place.signal, (err) => explained(err, lease, place))
  }

  /** What is at the path; undefined where nothing is. `tree` is the id of the folder where it starts. */
  async find(tree: string, path: string): Promise<Row | undefined> {
    let row: Row | undefined = { mode: folderMode, oid: tree }
    for (const [depth, name] of path.split('/').entries()) {
      if (row?.mode !== folderMode) return undefined
      row = rowOf(await this.#folder(row.oid, depth), name)
    }
    return row
  }

  async #folder(oid: string, depth: number): Promise<Folder> {
    const known = this.#way[depth]
    if (known?.oid === oid) return known
    this.#way.length = depth
    const above = this.#way.reduce((sum, { content }) => sum + content.length, 0)
    const content = await wholeOf(await this.#reader.read(oid, 'tree'), maxWayBytes - above)
    const folder = { oid, content, rows: await rowsOf(content, this.#pace) }
    this.#way.push(folder)
    return folder
  }

  async close(): Promise<void> {
    await this.#reader.close()
  }
}

async function wholeOf(body: Buffer | Readable, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of Buffer.isBuffer(body) ? [body] : (body as AsyncIterable<Buffer>)) {
    bytes += chunk.length
    if (bytes > maxBytes)
      throw new ReconcileError('TooManyFiles', `the folders above a path take more than ${maxWayBytes} bytes`)
    chunks.push(chunk)
  }
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
}

/** A tree object is rows of `<mode> <name>NUL<20 bytes of id>`, without anything between them. Names are keys as Latin-1: they may be no UTF-8. */
async function rowsOf(content: Buffer, pace: Pace): Promise<Map<string, number>> {
  const rows = new Map<string, number>()
  for (let start = 0; start < content.length;) {
    await pace()
    const space = content.indexOf(0x20, start)
    const end = content.indexOf(0, space)
    if (space < 0 || end < 0) break
    rows.set(content.toString('latin1', space + 1, end), start)
    start = end + 1 + oidBytes
  }
  return rows
}

function rowOf({ content, rows }: Folder, name: string): Row | undefined {
  const start = rows.get(Buffer.from(name).toString('latin1'))
  if (start === undefined) return undefined
  const mode = content.toString('latin1', start, content.indexOf(0x20, start)).replace(/^0+/, '') // which old tools have written
  const end = content.indexOf(0, start)
  return { mode, oid: content.toString('hex', end + 1, end + 1 + oidBytes) }
}
