import { createHash, type Hash } from 'node:crypto'
import { Readable } from 'node:stream'
import { startGit, type GitProcess } from '../git.ts'
import type { BareRepository } from '../mirror/repository.ts'

export type ObjectType = 'blob' | 'tree' | 'commit' | 'tag'

/** An object that was asked for. */
interface Request {
  oid: string
  type: ObjectType
  resolve: (content: Buffer | Readable) => void
  reject: (err: unknown) => void
}

/** The object whose content is just arriving. */
interface Arrival {
  request: Request
  left: number
  hash: Hash
  /** Filled where the object is small. */
  held?: Buffer
  stream?: Readable
}

/** The object is not what its id says, is missing, or cannot be read: the repository is damaged. */
export class ObjectError extends Error {}

const maxHeldBytes = 1024 * 1024
const maxHeaderBytes = 256

/**
 * Reads objects of one repository through one `git cat-file --batch`. Several may be asked for ahead; they come in the order of the calls. Each
 * content is hashed and compared with its id, so that what leaves here is what was committed.
 */
export class ObjectReader {
  readonly #git: GitProcess
  readonly #requests: Request[] = []
  #header = ''
  #arrival: Arrival | undefined
  #skipLineFeed = false
  readonly #explain: (err: Error) => Error
  #failure: Error | undefined

  /** `explain` turns an ObjectError, a GitError or the signal's reason into what readers get. */
  constructor(repository: BareRepository, signal: AbortSignal, explain: (err: Error) => Error) {
    this.#explain = explain
    this.#git = startGit(['--git-dir', repository.dir, 'cat-file', '--batch'], { env: repository.env, signal })
    this.#git.stdout.on('data', (chunk: Buffer) => this.#receive(chunk))
    this.#git.ended.then(
      () => this.#fail(new ObjectError('git cat-file has ended early')),
      (err: Error) => this.#fail(err),
    )
  }

  /**
   * The content: a Buffer up to 1 MiB, else a stream that must be read, or destroyed, before a later object can come.
   */
  async read(oid: string, type: ObjectType): Promise<Buffer | Readable> {
    if (this.#failure) throw this.#failure
    const { promise, resolve, reject } = Promise.withResolvers<Buffer | Readable>()
    this.#requests.push({ oid, type, resolve, reject })
    this.#ask(oid)
    return await promise
  }

  /** What is asked for in one turn goes out in one write. */
  #ask(oid: string): void {
    const { stdin } = this.#git
    if (stdin.writableCorked === 0) {
      stdin.cork()
      process.nextTick(() => stdin.uncork())
    }
    stdin.write(`${oid}\n`)
  }

  /** Whether nobody waits for anything of it. */
  get idle(): boolean {
    return this.#requests.length === 0 && this.#arrival === undefined
  }

  /** Ends the process. What has been asked for and not come yet is rejected. */
  async close(): Promise<void> {
    this.#stop(new Error('closed'))
    await this.#git.ended.catch(() => undefined) // it was killed
  }

  #receive(chunk: Buffer): void {
    let rest = chunk
    while (rest.length > 0 && !this.#failure) {
      if (this.#skipLineFeed) {
        rest = rest.subarray(1)
        this.#skipLineFeed = false
      } else if (this.#arrival) rest = rest.subarray(this.#takeContent(this.#arrival, rest))
      else rest = rest.subarray(this.#takeHeader(rest))
    }
  }

  #takeHeader(bytes: Buffer): number {
    const end = bytes.indexOf(0x0a)
    this.#header += bytes.toString('latin1', 0, end < 0 ? bytes.length : end)
    if (this.#header.length > maxHeaderBytes) this.#fail(new ObjectError('unexpected answer of git cat-file'))
    if (end < 0) return bytes.length
    const header = this.#header
    this.#header = ''
    this.#begin(header)
    return end + 1
  }

  #begin(header: string): void {
    const request = this.#requests.shift()
    const [oid, type, digits] = header.split(' ')
    if (!request || oid !== request.oid) return this.#fail(new ObjectError('unexpected answer of git cat-file'))
    if (type === 'missing' || digits === undefined)
      return this.#refuse(request, new ObjectError(`object ${oid} is missing`))
    if (type !== request.type)
      return this.#refuse(request, new Error(`object ${oid} is a ${type}, not a ${request.type}`))
    const left = Number(digits)
    const arrival: Arrival = { request, left, hash: createHash('sha1').update(`${type} ${left}\0`) }
    this.#arrival = arrival
    if (left <= maxHeldBytes) arrival.held = Buffer.allocUnsafe(left)
    else {
      const stdout = this.#git.stdout
      arrival.stream = new Readable({ read: () => void stdout.resume() })
      // Whoever destroys it does not want the rest, which has to pass by all the same.
      arrival.stream.once('close', () => stdout.resume())
      arrival.stream.on('error', () => undefined) // whoever reads it hears of it, but perhaps nobody does
      request.resolve(arrival.stream)
    }
    if (left === 0) this.#finish(arrival)
  }

  #takeContent(arrival: Arrival, bytes: Buffer): number {
    const content = bytes.subarray(0, arrival.left)
    arrival.hash.update(content)
    if (arrival.held) content.copy(arrival.held, arrival.held.length - arrival.left)
    arrival.left -= content.length
    const { stream } = arrival
    if (stream && !stream.destroyed && !stream.push(content)) this.#git.stdout.pause()
    if (arrival.left === 0) this.#finish(arrival)
    return content.length
  }

  #finish({ request, hash, held, stream }: Arrival): void {
    this.#arrival = undefined
    this.#skipLineFeed = true
    if (hash.digest('hex') !== request.oid)
      return this.#refuse(request, new ObjectError(`object ${request.oid} is not what was committed`), stream)
    if (held) request.resolve(held)
    stream?.push(null)
  }

  #refuse(request: Request, why: Error, stream?: Readable): void {
    const error = this.#explain(why)
    request.reject(error)
    stream?.destroy(error)
    this.#stop(error)
  }

  #fail(error: Error): void {
    if (!this.#failure) this.#stop(this.#explain(error))
  }

  #stop(error: Error): void {
    if (this.#failure) return
    this.#failure = error
    this.#arrival?.request.reject(error)
    this.#arrival?.stream?.destroy(error)
    for (const request of this.#requests.splice(0)) request.reject(error)
    this.#git.stdout.resume()
    this.#git.kill()
  }
}
