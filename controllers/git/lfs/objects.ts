import { Readable } from 'node:stream'
import { messageOf, ReconcileError } from '../../runtime/errors.ts'
import { Semaphore } from '../../artifact/storage/locks.ts'
import { SharedCalls } from '../../runtime/shared-calls.ts'
import { aborted } from '../failure.ts'
import { askBatch, maxBatchObjects, type Download, type LfsObject } from './batch.ts'
import { lfsFailure, sendLfs, type LfsBody, type LfsOwner, type LfsRemote } from './lfs-http.ts'
import { smallBytes, type ObjectStore } from './object-store.ts'

/** How many small objects are downloaded at the same time; large ones come one after the other, as the archive takes them. */
const concurrency = 8
const attempts = 2

/** The objects of one commit: out of the store, else from the server. */
export class LfsObjects {
  readonly #owner: LfsOwner
  readonly #connect: () => Promise<LfsRemote>
  readonly #store: ObjectStore
  readonly #signal: AbortSignal
  /** What the commit needs, in the order of the files. */
  readonly #expected: LfsObject[] = []
  readonly #stored = new Set<string>()
  readonly #places = new Map<string, number>()
  readonly #downloads = new Map<string, Promise<Download | Error>>()
  readonly #calls = new SharedCalls<Buffer>()
  readonly #slots = new Semaphore(concurrency)
  #remote: Promise<LfsRemote> | undefined

  /** `connect` is called where there is something to be asked. */
  constructor(owner: LfsOwner, connect: () => Promise<LfsRemote>, store: ObjectStore, signal: AbortSignal) {
    this.#owner = owner
    this.#connect = connect
    this.#store = store
    this.#signal = signal
  }

  /** Says that an object will be wanted, so that it is asked for together with others. */
  async expect(object: LfsObject): Promise<void> {
    if (this.#places.has(object.oid)) return
    // Before the look at the disk: looks end in any order.
    this.#places.set(object.oid, this.#expected.push(object) - 1)
    if (await this.#store.has(object)) this.#stored.add(object.oid)
  }

  /** The content, which is checked to its end. Throws ReconcileError `GitOperationFailed`. */
  async open(object: LfsObject): Promise<Buffer | Readable> {
    const stored = await this.#store.read(object)
    if (stored) return stored
    if (object.sizeBytes > smallBytes) return Readable.from(this.#stream(object))
    const download = () => this.#slots.run(() => this.#retried(() => this.#whole(object), object))
    try {
      return await this.#calls.run(`${object.oid} ${object.sizeBytes}`, this.#signal, download)
    } catch (err) {
      throw this.#failure(object, err)
    }
  }

  async #whole(object: LfsObject): Promise<Buffer> {
    const chunks: Buffer[] = []
    for await (const chunk of this.#store.receive(object, await this.#body(object))) chunks.push(chunk)
    return Buffer.concat(chunks)
  }

  async *#stream(object: LfsObject): AsyncGenerator<Buffer, void, undefined> {
    try {
      yield* this.#store.receive(object, await this.#retried(() => this.#body(object), object))
    } catch (err) {
      throw this.#failure(object, err)
    }
  }

  /** Once more, with a new address, unless the server wants to be left alone. */
  async #retried<R>(work: () => Promise<R>, { oid }: LfsObject): Promise<R> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work()
      } catch (err) {
        const final = err instanceof ReconcileError && err.retryAfterMs !== undefined
        if (attempt === attempts || final || this.#signal.aborted) throw err
        this.#downloads.delete(oid)
      }
    }
  }

  #failure({ oid, path }: LfsObject, err: unknown): ReconcileError {
    if (err instanceof ReconcileError) return err
    if (this.#signal.aborted) return aborted(this.#owner.shownUrl, this.#signal)
    return lfsFailure(this.#owner, `object '${oid}' of '${path}': ${messageOf(err)}`, { cause: err })
  }

  async #body(object: LfsObject): Promise<LfsBody> {
    const { url, headers } = await this.#downloadOf(object)
    const asked = { url, headers: {}, ownHeaders: headers, signal: this.#signal }
    return await sendLfs(await this.#connected(), asked)
  }

  #connected(): Promise<LfsRemote> {
    if (!this.#remote) {
      this.#remote = this.#connect()
      this.#remote.catch(() => (this.#remote = undefined)) // who waits hears of it, and others ask anew
    }
    return this.#remote
  }

  async #downloadOf(object: LfsObject): Promise<Download> {
    let download = await this.#asked(object)
    if (!(download instanceof Error) && download.untilMs <= performance.now()) {
      this.#downloads.delete(object.oid)
      download = await this.#asked(object)
    }
    if (download instanceof Error) throw download
    if (download.untilMs <= performance.now()) throw new Error('the server gives an address that has already expired')
    return download
  }

  /** One question for this object and those that will be wanted next. */
  #asked(object: LfsObject): Promise<Download | Error> {
    const known = this.#downloads.get(object.oid)
    if (known) return known
    const next = this.#expected
      .slice(this.#places.get(object.oid) ?? Infinity)
      .filter(({ oid }) => oid !== object.oid && !this.#downloads.has(oid) && !this.#stored.has(oid))
    const objects = [object, ...next.slice(0, maxBatchObjects - 1)]
    const answers = this.#connected().then((remote) => askBatch(remote, objects, this.#signal))
    for (const [i, { oid }] of objects.entries()) {
      const answer = answers.then((all) => all[i]!)
      answer.catch(() => this.#downloads.delete(oid)) // who waits hears of it, and others ask anew
      this.#downloads.set(oid, answer)
    }
    return this.#downloads.get(object.oid)!
  }
}
