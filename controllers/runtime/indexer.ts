import { keyOf, type KubeObject } from './kind.ts'

/** The index keys of one object; none, one or several. */
export type IndexFunction<T> = (object: T) => readonly string[]

/** Objects by `namespace/name`, and by any number of named indexes. A lookup costs as much as it finds. */
export class Indexer<T extends KubeObject> {
  readonly #objects: Map<string, T> = new Map()
  readonly #functions: Map<string, IndexFunction<T>>
  readonly #indexes: Map<string, Map<string, Set<string>>> = new Map()

  constructor(functions: Record<string, IndexFunction<T>> = {}) {
    this.#functions = new Map(Object.entries(functions))
    for (const name of this.#functions.keys()) this.#indexes.set(name, new Map())
  }

  get size(): number {
    return this.#objects.size
  }

  get(key: string): T | undefined {
    return this.#objects.get(key)
  }

  keys(): IterableIterator<string> {
    return this.#objects.keys()
  }

  list(): IterableIterator<T> {
    return this.#objects.values()
  }

  /** The objects whose index `name` has `value` among its keys. Throws where no such index was declared. */
  by(name: string, value: string): T[] {
    const index = this.#indexes.get(name)
    if (!index) throw new Error(`no index '${name}'`)
    const found: T[] = []
    for (const key of index.get(value) ?? []) found.push(this.#objects.get(key)!)
    return found
  }

  set(object: T): void {
    const key = keyOf(object)
    this.#unindex(key)
    this.#objects.set(key, object)
    for (const [name, indexKeys] of this.#functions) {
      const index = this.#indexes.get(name)!
      for (const value of indexKeys(object)) {
        const keys = index.get(value)
        if (keys) keys.add(key)
        else index.set(value, new Set([key]))
      }
    }
  }

  delete(key: string): void {
    this.#unindex(key)
    this.#objects.delete(key)
  }

  #unindex(key: string): void {
    const old = this.#objects.get(key)
    if (!old) return
    for (const [name, indexKeys] of this.#functions) {
      const index = this.#indexes.get(name)!
      for (const value of indexKeys(old)) {
        const keys = index.get(value)
        keys?.delete(key)
        if (keys?.size === 0) index.delete(value)
      }
    }
  }
}
