import { createHash } from 'node:crypto'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { isAlive } from './cache.ts'

// Short, as a Unix socket's path may have 104 bytes on darwin. The host is part of it because containers may share /tmp
// without sharing process numbers.
const prefix = `openflux-${createHash('sha256').update(hostname()).digest('hex').slice(0, 4)}-`

/** Makes a private folder that this process removes; if it cannot any more, the next call of another process does. */
export async function temporaryFolder(parent: string = tmpdir()): Promise<string> {
  await removeOrphans(parent)
  return mkdtemp(join(parent, `${prefix}${process.pid}-`))
}

async function removeOrphans(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    const pid = name.startsWith(prefix) ? Number(name.slice(prefix.length).split('-')[0]) : NaN
    if (!Number.isInteger(pid) || pid <= 0 || isAlive(pid)) continue
    // Another user's, or being removed by another process too: it is not worth a failure.
    await rm(join(parent, name), { recursive: true, force: true }).catch(() => {})
  }
}
