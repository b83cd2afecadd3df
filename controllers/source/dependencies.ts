import { ownerIndex } from '../artifact/artifact.ts'
import type { Artifact } from '../artifact/types.ts'
import type { Context } from '../runtime/context.ts'
import type { Change, Informer } from '../runtime/informer.ts'
import { type ObjectKey, parseKey } from '../runtime/kind.ts'
import { equal } from '../runtime/merge-patch.ts'
import { ownerKeys, referenceKey } from '../runtime/owners.ts'
import type { Reader, SecretWatches } from '../runtime/secret-watches.ts'
import type { OpenedEntries, SourceContext } from './source.ts'

export interface DependenciesOptions {
  secrets: SecretWatches
  artifacts: Informer<Artifact>
  open: (artifact: Artifact, signal: AbortSignal) => Promise<OpenedEntries>
  /** Asks for a pass over the object `namespace/name`, also where it waits after a failure. */
  enqueue: (key: string) => void
}

/** What one pass uses of other objects. */
export interface Uses {
  /** The context of the pass, which writes down what is asked for. */
  of(ctx: Context): SourceContext
  /** The pass is over: what it has asked for is watched from now on, nothing else, and nothing at all once `signal` has aborted. */
  end(signal: AbortSignal): void
}

/** An object, and what it has asked for: names of Secrets, and reference keys of other sources. */
interface User extends Reader {
  secrets: Set<string>
  sources: Set<string>
}

const nothing: Pick<User, 'secrets' | 'sources'> = { secrets: new Set(), sources: new Set() }

/** What the objects of one kind need of others, Secrets and Artifacts: a change of it brings about a pass at once. */
export class Dependencies {
  readonly #options: DependenciesOptions
  readonly #users: Map<string, User> = new Map()
  readonly #usersOfSource: Map<string, Set<User>> = new Map()

  constructor(options: DependenciesOptions) {
    this.#options = options
    options.artifacts.onChange((change) => this.#onArtifact(change))
  }

  /** A pass over an object begins. */
  begin({ namespace, name }: ObjectKey): Uses {
    const key = `${namespace}/${name}`
    const user = this.#users.get(key) ?? {
      wake: () => this.#options.enqueue(key),
      secrets: new Set(),
      sources: new Set(),
    }
    this.#users.set(key, user)
    const used = { secrets: new Set<string>(), sources: new Set<string>() }
    return {
      of: (ctx) => this.#contextOf(ctx, namespace, user, used),
      end: (signal) => {
        this.#keep(namespace, user, signal.aborted ? nothing : used)
        if (user.secrets.size + user.sources.size === 0) this.#users.delete(key)
      },
    }
  }

  /** A term of leadership is over: nothing is of interest any more, until the objects are passed again in the next one. */
  clear(): void {
    for (const [key, user] of this.#users) this.#keep(parseKey(key).namespace, user, nothing)
    this.#users.clear()
  }

  #contextOf(ctx: Context, namespace: string, user: User, used: Pick<User, 'secrets' | 'sources'>): SourceContext {
    const { secrets, artifacts, open } = this.#options
    return {
      ...ctx,
      secrets: {
        read: (name) => {
          used.secrets.add(name)
          user.secrets.add(name)
          return secrets.read({ namespace, name }, user, ctx.signal)
        },
      },
      artifacts: {
        of: (kind, name) => {
          const source = referenceKey(kind.group, kind.kind, namespace, name)
          used.sources.add(source)
          this.#useSource(user, source)
          const live = artifacts.cache.by(ownerIndex, source).filter(({ metadata }) => !metadata.deletionTimestamp)
          // Of several none can be trusted to be that of the source.
          return live.length === 1 ? live[0] : undefined
        },
        open: (artifact) => open(artifact, ctx.signal),
      },
    }
  }

  #useSource(user: User, source: string): void {
    user.sources.add(source)
    const users = this.#usersOfSource.get(source)
    if (users) users.add(user)
    else this.#usersOfSource.set(source, new Set([user]))
  }

  #keep(namespace: string, user: User, kept: Pick<User, 'secrets' | 'sources'>): void {
    for (const name of user.secrets) {
      if (kept.secrets.has(name)) continue
      user.secrets.delete(name)
      this.#options.secrets.release({ namespace, name }, user)
    }
    for (const source of user.sources) {
      if (kept.sources.has(source)) continue
      user.sources.delete(source)
      const users = this.#usersOfSource.get(source)
      users?.delete(user)
      if (users?.size === 0) this.#usersOfSource.delete(source)
    }
  }

  #onArtifact(change: Change<Artifact>): void {
    const before = change.type === 'updated' ? change.previous : undefined
    if (before && isSame(before, change.object)) return
    // Somebody may have given it another owner: both of them are concerned.
    const sources = new Set([...ownerKeys(change.object), ...(before ? ownerKeys(before) : [])])
    for (const source of sources) for (const user of this.#usersOfSource.get(source) ?? []) user.wake()
  }
}

/** Whether nothing has changed that anybody could see who asks for the Artifact of a source. */
function isSame(a: Artifact, b: Artifact): boolean {
  const gone = Boolean(a.metadata.deletionTimestamp) !== Boolean(b.metadata.deletionTimestamp)
  return !gone && equal(a.spec, b.spec) && equal(ownerKeys(a), ownerKeys(b))
}
