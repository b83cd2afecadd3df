import { randomBytes } from 'node:crypto'
import { readlinkSync } from 'node:fs'
import { lstat, mkdir, open, readdir, rm, type FileHandle } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { codeOf } from './durable.ts'

/** Where this process' pid means something: its host and its pid namespace. In the name of each unfinished file. */
export const host = `${hostname().replace(/[^A-Za-z0-9-]/g, '-') || 'localhost'}-${pidNamespace()}`
/** Tells this process from an earlier one with its pid: in a container that is always 1. */
const nonce = randomBytes(8).toString('hex')
const owner = `${host}.${process.pid}.${nonce}.`
const nameForm = /^([A-Za-z0-9-]+)\.(\d+)\.([0-9a-f]{16})\.\d+$/

/** Whoever has not written for so long is gone. All that can be known of a process on another host. */
const abandonedMs = 60 * 60 * 1000

let count = 0

/** A pid means something only within its namespace: two containers of one pod have the same host name. */
function pidNamespace(): string {
  try {
    return readlinkSync('/proc/self/ns/pid').replace(/\D/g, '')
  } catch {
    return '0' // not Linux: there are no such namespaces
  }
}

/** The folder of unfinished files. Every name says who writes it, so that a crash leaves nothing behind for good. */
export class Temps {
  readonly folder: string

  constructor(folder: string) {
    this.folder = folder
  }

  /** A path that nothing has. */
  path(): string {
    return join(this.folder, `${owner}${count++}`)
  }

  /** A new empty file, for its owner only whatever the umask. */
  async create(): Promise<{ path: string; handle: FileHandle }> {
    const path = this.path()
    const handle = await open(path, 'wx', 0o600).catch(async (err: unknown) => {
      if (codeOf(err) !== 'ENOENT') throw err
      await mkdir(this.folder, { recursive: true, mode: 0o700 }) // somebody has emptied the storage
      return open(path, 'wx', 0o600)
    })
    try {
      await handle.chmod(0o600)
    } catch (err) {
      await handle.close()
      throw err
    }
    return { path, handle }
  }

  /** Removes what dead processes have left; gives the number of files. */
  async sweep(): Promise<number> {
    const names = await readdir(this.folder).catch((err: unknown) => {
      if (codeOf(err) === 'ENOENT') return []
      throw err
    })
    let removed = 0
    for (const name of names) {
      const path = join(this.folder, name)
      if (!(await isAbandoned(name, path))) continue
      await rm(path, { recursive: true, force: true })
      removed++
    }
    return removed
  }
}

async function isAbandoned(name: string, path: string): Promise<boolean> {
  if (name.startsWith(owner)) return false
  const [, itsHost, pid, itsNonce] = nameForm.exec(name) ?? []
  if (itsHost === host && (Number(pid) === process.pid || !isAlive(Number(pid)))) return itsNonce !== nonce
  try {
    return Date.now() - (await lstat(path)).mtimeMs > abandonedMs
  } catch (err) {
    if (codeOf(err) === 'ENOENT') return false // finished meanwhile
    throw err
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (err) {
    return codeOf(err) === 'EPERM' // alive, but not ours
  }
}
