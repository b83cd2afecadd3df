import { randomUUID } from 'node:crypto'
import { link, open, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf, ensureFolder, refusesLinks, syncFolder } from './durable.ts'
import { ownFolder } from './paths.ts'
import type { Temps } from './temps.ts'

const form = /^[0-9a-f-]{36}$/
/** How long another process may take to write 36 bytes, on file systems that cannot make a file with its content at once. */
const patienceMs = 5000

/** The id of the storage below `root`: that of the first process that asked, the same for all that share the folder. `preferred` is what a new one gets. */
export async function storageId(root: string, temps: Temps, preferred: string = randomUUID()): Promise<string> {
  const file = join(await ensureFolder(root, ownFolder), 'id')
  const known = await readId(file)
  if (known !== undefined) return known
  const temp = await temps.create()
  try {
    await temp.handle.writeFile(preferred)
    await temp.handle.sync()
    await link(temp.path, file).catch(async (err: unknown) => {
      if (refusesLinks(err)) await writeExclusively(file, preferred)
      else if (codeOf(err) !== 'EEXIST') throw err
    })
    await syncFolder(join(root, ownFolder))
  } finally {
    await temp.handle.close()
    await rm(temp.path, { force: true })
  }
  return waitForId(file)
}

async function writeExclusively(file: string, id: string): Promise<void> {
  try {
    const handle = await open(file, 'wx', 0o600)
    try {
      await handle.writeFile(id)
    } finally {
      await handle.close()
    }
  } catch (err) {
    if (codeOf(err) !== 'EEXIST') throw err
  }
}

async function waitForId(file: string): Promise<string> {
  const deadline = performance.now() + patienceMs
  for (;;) {
    const id = await readId(file)
    if (id !== undefined) return id
    if (performance.now() > deadline) throw new Error(`'${ownFolder}/id' in the storage folder is not an id; remove it`)
    await sleep(50)
  }
}

async function readId(file: string): Promise<string | undefined> {
  try {
    const id = await readFile(file, 'utf8')
    return form.test(id) ? id : undefined
  } catch (err) {
    if (codeOf(err) === 'ENOENT') return undefined
    throw err
  }
}
