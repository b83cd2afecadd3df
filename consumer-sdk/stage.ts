import { access, constants, lstat, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { codeOf } from './system-error.ts'

/** An empty folder that becomes the target when it is complete. */
export interface Stage {
  path: string
  /** Puts the content into the target's place. */
  commit(): Promise<void>
  /** Removes what is left; after a commit there is nothing. */
  discard(): Promise<void>
}

/** The same for all targets: a name that held the target's could be longer than file systems take. */
const stagePrefix = '.openflux-'
/** As old as no stage gets that is in use. */
const abandonedAfterMs = 24 * 60 * 60_000

/**
 * Opens a stage for `target`, which must not exist or be an empty folder unless `replace` is set; links are refused. The stage is the folder
 * `.openflux-XXXXXX` beside the target, from where it is renamed; folders of such a name that are older than a day are removed. Where it cannot be there
 * (a mount point, a parent that is read-only) it lies within the target and its content is moved up, which is not atomic.
 */
export async function openStage(target: string, replace: boolean): Promise<Stage> {
  const folder = resolve(target)
  const existing = await lstat(folder).catch(absent)
  if (existing && !existing.isDirectory()) throw new Error(`${folder} is no folder, links are not followed`)
  if (existing && !replace && (await readdir(folder)).length > 0) throw new Error(`${folder} is not empty`)
  const parent = dirname(folder)
  if (!existing) await mkdir(parent, { recursive: true })
  const beside = !existing || (existing.dev === (await stat(parent)).dev && (await isWritable(parent)))
  return beside ? stageBeside(folder, Boolean(existing)) : stageWithin(folder)
}

async function stageBeside(folder: string, exists: boolean): Promise<Stage> {
  const parent = dirname(folder)
  await removeAbandoned(parent)
  const stage = await mkdtemp(join(parent, stagePrefix))
  const path = join(stage, 'new')
  // Within the stage, not beside it: a folder that is moved keeps its age, and would look abandoned to others.
  const old = join(stage, 'old')
  await mkdir(path, { mode: 0o700 })
  return {
    path,
    async commit() {
      // An empty folder is replaced by the rename itself, which fails if it has been filled meanwhile.
      const full = exists && (await readdir(folder)).length > 0
      if (full) await rename(folder, old)
      try {
        await rename(path, folder)
      } catch (err) {
        if (full) await rename(old, folder)
        throw err
      }
    },
    discard: () => rm(stage, { recursive: true, force: true }),
  }
}

/** Removes the stages of processes that were killed. */
async function removeAbandoned(parent: string): Promise<void> {
  const entries = await readdir(parent, { withFileTypes: true }).catch(() => []) // may be writable, but not readable
  for (const entry of entries) {
    if (!entry.isDirectory() || !/^\.openflux-\w{6}$/.test(entry.name)) continue
    const path = join(parent, entry.name)
    const { mtimeMs = Infinity } = (await lstat(path).catch(absent)) ?? {}
    if (Date.now() - mtimeMs < abandonedAfterMs) continue
    await rm(path, { recursive: true, force: true }).catch(() => undefined) // another user's: in nobody's way
  }
}

async function stageWithin(folder: string): Promise<Stage> {
  const path = await mkdtemp(join(folder, '.extract.'))
  return {
    path,
    async commit() {
      for (const name of await readdir(folder))
        if (name !== basename(path)) await rm(join(folder, name), { recursive: true, force: true })
      for (const name of await readdir(path)) await rename(join(path, name), join(folder, name))
    },
    discard: () => rm(path, { recursive: true, force: true }),
  }
}

function absent(err: unknown): undefined {
  if (codeOf(err) !== 'ENOENT') throw err
}

async function isWritable(folder: string): Promise<boolean> {
  return access(folder, constants.W_OK).then(
    () => true,
    () => false, // whatever keeps us from writing there, the stage must be elsewhere
  )
}
