import { parseKey } from './kind.ts'

/** Keys `namespace/name`, each once. The namespaces take turns, so that one with a thousand keys does not let the others wait for all of them. */
export class FairKeys {
  /** The namespace whose turn it is comes first; of its keys the one that arrived first. */
  readonly #namespaces: Map<string, Set<string>> = new Map()
  #size = 0

  get size(): number {
    return this.#size
  }

  has(key: string): boolean {
    return this.#namespaces.get(parseKey(key).namespace)?.has(key) ?? false
  }

  add(key: string): void {
    if (this.has(key)) return
    const { namespace } = parseKey(key)
    const keys = this.#namespaces.get(namespace)
    if (keys) keys.add(key)
    else this.#namespaces.set(namespace, new Set([key]))
    this.#size++
  }

  /** Takes the next key of a namespace that `mayGo`. */
  take(mayGo: (namespace: string) => boolean): string | undefined {
    for (const [namespace, keys] of this.#namespaces) {
      if (!mayGo(namespace)) continue
      const [key] = keys
      if (key === undefined) continue
      keys.delete(key)
      this.#size--
      this.#namespaces.delete(namespace)
      if (keys.size > 0) this.#namespaces.set(namespace, keys) // behind all others
      return key
    }
    return undefined
  }

  clear(): void {
    this.#namespaces.clear()
    this.#size = 0
  }
}
