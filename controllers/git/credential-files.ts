import { mkdirSync } from 'node:fs'
import { mkdtemp, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

/** Files for one process, in a folder of their own. */
export interface CredentialFiles<N extends string> {
  /** Absolute, by the name that was given. */
  paths: Record<N, string>
  /** Removes them all; may be called more than once. */
  release: () => Promise<void>
}

const beatMs = 5_000
/** A folder that has not been touched for so long is nobody's any more. */
const staleMs = 30_000

/** What this process has written and not yet released: never a leftover, whatever the clock says. */
const held: Set<string> = new Set()

/**
 * Writes what a program can only read from a file: for the user alone (0600; 0700 for the names in `executable`), in a new folder below `folder`, which is
 * made where it is missing. Names come from the code, never from a spec. The caller releases them as soon as the program has ended.
 */
export async function writeCredentialFiles<N extends string>(
  folder: string,
  files: Record<N, string>,
  executable: readonly NoInfer<N>[] = [],
): Promise<CredentialFiles<N>> {
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const own = await mkdtemp(join(folder, 'files-')) // 0700
  held.add(own)
  const beat = setInterval(() => void utimes(own, new Date(), new Date()).catch(() => undefined), beatMs)
  beat.unref()
  const release = async () => {
    clearInterval(beat)
    await rm(own, { recursive: true, force: true })
    held.delete(own)
  }
  try {
    const paths = {} as Record<N, string>
    for (const [name, content] of Object.entries<string>(files) as [N, string][]) {
      paths[name] = join(own, name)
      await writeFile(paths[name], content, { mode: executable.includes(name) ? 0o700 : 0o600, flag: 'wx' })
    }
    return { paths, release }
  } catch (err) {
    await release()
    throw err
  }
}

/**
 * Removes what processes have left behind that ended without releasing it: at once what is old enough, and the rest when it has become so. What processes
 * that are still alive have written stays, be they on another machine.
 */
export async function removeLeftCredentialFiles(folder: string, silentMs: number = staleMs): Promise<void> {
  setTimeout(() => void removeStale(folder, silentMs), silentMs + beatMs).unref()
  await removeStale(folder, silentMs)
}

async function removeStale(folder: string, silentMs: number): Promise<void> {
  for (const name of await readdir(folder).catch(() => [])) {
    const path = join(folder, name)
    const touchedMs = await stat(path).then(
      (s) => s.mtimeMs,
      () => Infinity, // its owner has just removed it
    )
    if (held.has(path) || Date.now() - touchedMs < silentMs) continue
    await rm(path, { recursive: true, force: true }).catch(() => undefined) // another process removes it too
  }
}
