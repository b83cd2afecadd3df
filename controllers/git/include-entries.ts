import { makePacer } from '../artifact/archive/pace.ts'
import type { Entries, Entry } from '../artifact/entry.ts'
import { quote } from '../artifact/quote.ts'
import type { Artifact } from '../artifact/types.ts'
import { messageOf, ReconcileError, WaitingError } from '../runtime/errors.ts'
import { StorageOperationFailed } from '../source/conditions.ts'
import type { OpenedEntries, SourceContext } from '../source/source.ts'
import type { Include } from './includes.ts'

/** The entries of an object together with those it includes. `close` frees what the latter are read from. */
export interface MergedEntries {
  entries: Entries
  close: () => Promise<void>
}

/**
 * Adds what is included to an object's own entries. Nothing is read before the first entry is asked for. Throws ReconcileError `CopyFailure` from there where a
 * folder is missing, a path is taken, or an artifact cannot be read.
 */
export function addIncludes(own: Entries, includes: readonly Include[], ctx: SourceContext): MergedEntries {
  const opened = new Map<string, Promise<OpenedEntries>>()
  const open = (artifact: Artifact): Promise<OpenedEntries> => {
    const digest = artifact.spec?.digest ?? ''
    const files = opened.get(digest) ?? ctx.artifacts.open(artifact)
    opened.set(digest, files)
    return files
  }
  return {
    entries: merge(own, includes, open, ctx.signal),
    async close() {
      // What could not be opened has been reported by whoever asked for it.
      for (const files of await Promise.allSettled(opened.values()))
        if (files.status === 'fulfilled') await files.value.close()
    },
  }
}

type Open = (artifact: Artifact) => Promise<OpenedEntries>

async function* merge(
  own: Entries,
  includes: readonly Include[],
  open: Open,
  signal: AbortSignal,
): AsyncGenerator<Entry> {
  const taken = new TakenPaths()
  for await (const entry of own) {
    if (includes.some(({ toPath }) => isOnTheWay(entry.path, toPath))) taken.add(entry.path)
    yield entry
  }
  for (const include of includes) yield* copied(include, open, taken, signal)
}

/** The included files under their new paths. */
async function* copied(include: Include, open: Open, taken: TakenPaths, signal: AbortSignal): AsyncGenerator<Entry> {
  const { fromPath, toPath, artifact } = include
  const { entries } = await open(artifact).catch((err: unknown) => {
    signal.throwIfAborted()
    throw copyFailure(include, messageOf(err), err)
  })
  const pace = makePacer(signal)
  let found = fromPath === ''
  for (const entry of entries) {
    await pace()
    const rest = below(fromPath, entry.path)
    if (rest === undefined) continue
    found = true
    const path = [toPath, rest].filter(Boolean).join('/')
    if (path === '') throw copyFailure(include, `${quote(fromPath)} is a file`)
    const obstacle = taken.add(path)
    if (obstacle !== undefined) throw copyFailure(include, `${quote(obstacle)} is there already`)
    yield { ...entry, path }
  }
  if (!found) throw copyFailure(include, `no such file or directory: ${quote(fromPath)}`)
}

/** The path relative to a folder, '' for a file of its name; undefined outside. */
function below(folder: string, path: string): string | undefined {
  if (folder === '') return path
  if (path === folder) return ''
  return path.startsWith(`${folder}/`) ? path.slice(folder.length + 1) : undefined
}

/** Whether a file could be in the way of what goes into a folder: it lies below, or is where the folder should be. */
function isOnTheWay(path: string, folder: string): boolean {
  return below(folder, path) !== undefined || folder.startsWith(`${path}/`)
}

/** Paths of files, and of the folders that they lie in. */
class TakenPaths {
  readonly #files: Set<string> = new Set()
  readonly #folders: Set<string> = new Set()

  /** Takes a path for a file; gives the path that is in its way, if there is one. */
  add(path: string): string | undefined {
    if (this.#files.has(path) || this.#folders.has(path)) return path
    for (let end = path.lastIndexOf('/'); end > 0; end = path.lastIndexOf('/', end - 1)) {
      const folder = path.slice(0, end)
      if (this.#files.has(folder)) return folder
      if (this.#folders.has(folder)) break
      this.#folders.add(folder)
    }
    this.#files.add(path)
    return undefined
  }
}

function copyFailure({ name, fromPath, toPath }: Include, why: string, cause?: unknown): ReconcileError {
  const message = `failed to copy '${name}' include from ${fromPath || '.'} to ${toPath || '.'}: ${why}`
  const retryAfterMs = cause instanceof ReconcileError ? cause.retryAfterMs : undefined
  const Failure = cause instanceof WaitingError ? WaitingError : ReconcileError
  return new Failure('CopyFailure', message, { cause, retryAfterMs, condition: StorageOperationFailed })
}
