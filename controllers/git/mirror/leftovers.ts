import { readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'

const leftoverMs = 60_000

/** Removes from a mirror's folder what processes that died meanwhile were about to delete or to write. */
export async function removeLeftovers(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.removed') || name.startsWith('lock.'))
  for (const name of names) {
    const path = join(folder, name)
    const changedMs = await stat(path).then(
      (s) => s.mtimeMs,
      () => Date.now(),
    ) // gone by itself
    if (Date.now() - changedMs > leftoverMs) await rm(path, { recursive: true, force: true })
  }
}
