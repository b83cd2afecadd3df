import { randomUUID } from 'node:crypto'
import { readFileSync, readlinkSync, renameSync, writeFileSync } from 'node:fs'
import { link, mkdir, readFile, rename, rm, stat, unlink, utimes, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { signalGroup } from '../git.ts'

/** Who holds a lock, as its file says. */
interface Owner {
  /** Equal for processes that can see each other's ids. */
  machine: string
  pid: number
  /** When the process started, so that a recycled id is not taken for it. Empty where the system does not tell. */
  started: string
  /** Of the process: an id is used again, at once where a container starts anew. */
  nonce: string
  /** Of this lock alone: one process may have had another one in its place. */
  id: string
  /** The group of git processes that works for the owner. */
  group?: { pid: number; started: string }
}

/** The right to change what is in a folder. */
export interface FolderLock {
  /** To be told of each group of processes that changes the folder, so that a successor can end it. */
  recordGroup: (pid: number) => void
  release: () => Promise<void>
}

const beatMs = 3_000
const staleMs = 15_000
const nonce = randomUUID()

/**
 * Takes `<folder>/lock`, which no other process holds then, whether on this machine or on another one that shares the folder; makes the folder where it is
 * missing. A lock whose process has died, or has not given a sign of life for 15 s, is taken over, and the git processes that it left behind are ended.
 */
export async function lockFolder(folder: string, signal: AbortSignal): Promise<FolderLock> {
  for (;;) {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    try {
      return await lockExisting(folder, signal)
    } catch (err) {
      if (codeOf(err) !== 'ENOENT' || signal.aborted) throw err // else whoever held it has removed the folder
    }
  }
}

async function lockExisting(folder: string, signal: AbortSignal): Promise<FolderLock> {
  const path = join(folder, 'lock')
  const mine: Owner = { machine: machine(), pid: process.pid, started: startOf(process.pid), nonce, id: randomUUID() }
  const draft = `${path}.${mine.id}`
  await writeFile(draft, JSON.stringify(mine))
  try {
    while (!(await create(draft, path))) {
      if (!(await takeOver(path, draft))) await delay(100, undefined, { signal })
    }
  } finally {
    await rm(draft, { force: true })
  }
  const beat = setInterval(() => void utimes(path, new Date(), new Date()).catch(() => undefined), beatMs) // lost: see release
  beat.unref()
  return {
    recordGroup: (pid) => {
      writeFileSync(draft, JSON.stringify({ ...mine, group: { pid, started: startOf(pid) } }))
      renameSync(draft, path)
    },
    release: async () => {
      clearInterval(beat)
      // Where it has been taken over, it is not ours to remove.
      if ((await read(path))?.id === mine.id) await unlink(path)
    },
  }
}

/** A link appears with its content, unlike a file that is opened and then written. Returns false where the name is taken. */
async function create(draft: string, path: string): Promise<boolean> {
  try {
    await utimes(draft, new Date(), new Date()) // waiting has aged it
    await link(draft, path)
    return true
  } catch (err) {
    if (codeOf(err) === 'EEXIST') return false
    throw err
  }
}

/** Removes a lock whose owner is gone. Returns false where it lives. */
async function takeOver(path: string, draft: string): Promise<boolean> {
  const owner = await read(path)
  const beaten = await stat(path).then(
    (s) => s.mtimeMs,
    () => undefined,
  )
  if (beaten === undefined) return true // just released
  if (Date.now() - beaten < staleMs && !(owner && isGone(owner))) return false
  const aside = `${draft}.stale`
  try {
    await rename(path, aside)
  } catch {
    return true // somebody else was faster
  }
  const taken = await read(aside)
  if (taken?.id !== owner?.id)
    await link(aside, path).catch(() => undefined) // a live one of a faster successor: put back
  else endGroup(owner)
  await unlink(aside)
  return true
}

function isGone(owner: Owner): boolean {
  if (owner.machine !== machine()) return false
  if (owner.pid === process.pid) return owner.nonce !== nonce
  return !isRunning(owner.pid, owner.started)
}

function endGroup(owner: Owner | undefined): void {
  const group = owner?.group
  if (!group || owner.machine !== machine() || group.started === '') return
  if (isRunning(group.pid, group.started)) signalGroup(group.pid, 'SIGKILL')
}

function isRunning(pid: number, started: string): boolean {
  try {
    process.kill(pid, 0)
  } catch (err) {
    return codeOf(err) === 'EPERM'
  }
  const now = startOf(pid)
  return now === '' || started === '' || now === started
}

async function read(path: string): Promise<Owner | undefined> {
  try {
    const value: unknown = JSON.parse(await readFile(path, 'utf8'))
    return isOwner(value) ? value : undefined
  } catch {
    return undefined // gone, or not written by us: only its age counts then
  }
}

function isOwner(value: unknown): value is Owner {
  return typeof value === 'object' && value !== null && 'machine' in value && 'pid' in value && 'nonce' in value
}

function codeOf(err: unknown): unknown {
  return err instanceof Error && 'code' in err ? err.code : undefined
}

/** Linux alone tells; elsewhere ids are trusted as they are. */
function startOf(pid: number): string {
  try {
    const status = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return status.slice(status.lastIndexOf(')') + 2).split(' ')[19] ?? ''
  } catch {
    return ''
  }
}

function machine(): string {
  const parts = [
    () => readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim(),
    () => readlinkSync('/proc/self/ns/pid'),
  ]
  const known = parts.map((part) => {
    try {
      return part()
    } catch {
      return '' // not Linux
    }
  })
  return [hostname(), ...known].join(' ')
}
