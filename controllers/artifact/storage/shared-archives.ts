import { orAborted } from '../archive/pace.ts'

/** An archive that this process has stored. */
export interface KnownArchive {
  digest: string
  sizeBytes: number
  droppedSymlinks: number
}

/** How one caller gets what the key stands for. */
export interface ShareOptions<R> {
  signal?: AbortSignal | undefined
  /** Makes use of an archive that was stored before; undefined where it is not intact any more. */
  reuse: (archive: KnownArchive) => Promise<R | undefined>
  /** Stores it anew. */
  build: () => Promise<{ result: R; archive: KnownArchive }>
}

/** About 200 bytes each. */
const maxKnown = 10_000

/** Lets whoever asks for the same archive use the one that is there: of those who ask at once one builds it, and all others use that. */
export class SharedArchives {
  /** The least recently used first. */
  readonly #known = new Map<string, KnownArchive>()
  /** Settled, never rejected, once the one who builds is done. */
  readonly #building = new Map<string, Promise<void>>()

  /** Who fails fails alone: the next one builds for the others. Throws what `reuse` and `build` throw, and the signal's reason. */
  async run<R>(key: string, { signal, reuse, build }: ShareOptions<R>): Promise<R> {
    for (;;) {
      signal?.throwIfAborted()
      const known = this.#known.get(key)
      const reused = known && (await reuse(known))
      if (known && reused !== undefined) {
        this.#remember(key, known)
        return reused
      }
      // What was known is damaged, unless another one has built it again meanwhile.
      if (this.#known.get(key) === known) this.#known.delete(key)
      else continue
      const building = this.#building.get(key)
      if (!building) return this.#build(key, build)
      await orAborted(building, signal)
    }
  }

  async #build<R>(key: string, build: ShareOptions<R>['build']): Promise<R> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#building.set(key, promise)
    try {
      const { result, archive } = await build()
      this.#remember(key, archive)
      return result
    } finally {
      this.#building.delete(key)
      resolve()
    }
  }

  #remember(key: string, archive: KnownArchive): void {
    this.#known.delete(key)
    this.#known.set(key, archive)
    const [oldest] = this.#known.keys()
    if (this.#known.size > maxKnown && oldest !== undefined) this.#known.delete(oldest)
  }
}
