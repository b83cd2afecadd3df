import { mkdir, mkdtemp, readFile, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { homedir, hostname } from 'node:os'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf } from './errors.ts'

/** A folder below the user's cache folder (XDG Base Directory; `~/Library/Caches` on darwin); not created here. */
export function cacheFolder(...parts: string[]): string {
  const xdg = process.env['XDG_CACHE_HOME'] ?? ''
  const usual = process.platform === 'darwin' ? join(homedir(), 'Library', 'Caches') : join(homedir(), '.cache')
  // The XDG specification says that a relative path is to be ignored.
  return join(isAbsolute(xdg) ? xdg : usual, 'openflux', ...parts)
}

/**
 * The folder, made by `make` if it does not exist yet. `make` fills a temporary folder beside it that is then renamed, so
 * a folder that exists is complete; of several processes that want it at once, one makes it and the others wait.
 */
export async function cached(folder: string, make: (temporary: string) => Promise<void>): Promise<string> {
  if (await exists(folder)) return folder
  await mkdir(dirname(folder), { recursive: true, mode: 0o700 })
  return withLock(`${folder}.lock`, async () => {
    if (await exists(folder)) return folder
    await removeLeftovers(folder)
    const temporary = await mkdtemp(`${folder}.tmp-`)
    try {
      await make(temporary)
      await rename(temporary, folder)
    } finally {
      await rm(temporary, { recursive: true, force: true })
    }
    return folder
  })
}

/** What a builder left that was killed; whoever holds the lock is the only builder. */
async function removeLeftovers(folder: string): Promise<void> {
  const names = await readdir(dirname(folder))
  const leftovers = names.filter((name) => name.startsWith(`${basename(folder)}.tmp-`))
  await Promise.all(leftovers.map((name) => rm(join(dirname(folder), name), { recursive: true, force: true })))
}

const touchMs = 2000
const staleMs = 30_000

/**
 * Runs `work` while holding a lock file; waits for as long as another process holds it. A lock is stale, and taken over,
 * when its process is gone or has not touched it for 30 s. It spares double work: two holders in a freak race must do no
 * harm, so let `work` finish with a rename.
 */
export async function withLock<T>(file: string, work: () => Promise<T>): Promise<T> {
  const owner = `${process.pid} ${hostname()} ${crypto.randomUUID()}`
  // A stale lock is gone at the second try.
  if (!(await acquire(file, owner)) && !(await acquire(file, owner))) {
    await progress(`waiting for another process that holds ${file}`, async () => {
      while (!(await acquire(file, owner))) await sleep(200)
    })
  }
  const touch = () => void utimes(file, new Date(), new Date()).catch(() => {}) // lost to a take-over: nothing to touch
  const timer = setInterval(touch, touchMs).unref()
  try {
    return await work()
  } finally {
    clearInterval(timer)
    if ((await readIfThere(file)) === owner) await rm(file, { force: true })
  }
}

async function acquire(file: string, owner: string): Promise<boolean> {
  try {
    await writeFile(file, owner, { flag: 'wx', mode: 0o600 })
    return true
  } catch (err) {
    if (codeOf(err) !== 'EEXIST') throw err
  }
  if (await isStale(file)) await rm(file, { force: true })
  return false
}

async function isStale(file: string): Promise<boolean> {
  const [content, touchedAtMs] = await Promise.all([
    readIfThere(file),
    stat(file).then(
      (stats) => stats.mtimeMs,
      () => Date.now(), // released a moment ago
    ),
  ])
  if (content === undefined) return false
  if (Date.now() - touchedAtMs > staleMs) return true
  const [pid, host] = content.split(' ')
  // Half written, or of another machine: then its age decides.
  return host === hostname() && !isAlive(Number(pid))
}

/** Whether a process of this machine still runs, be it another user's. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (err) {
    return codeOf(err) === 'EPERM'
  }
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8')
  } catch (err) {
    if (codeOf(err) === 'ENOENT') return undefined
    throw err
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    (err: NodeJS.ErrnoException) => {
      if (err.code === 'ENOENT') return false
      throw err
    },
  )
}

const progressMs = 15_000

/** Says on standard error that a long step begins, every 15 s that it still runs, and how it ended. */
export async function progress<T>(step: string, work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now()
  const elapsed = () => `${Math.round((performance.now() - startedAt) / 1000)} s`
  note(`${step} ...`)
  const timer = setInterval(() => note(`${step}: ${elapsed()} so far`), progressMs)
  try {
    const result = await work()
    note(`${step}: done in ${elapsed()}`)
    return result
  } catch (err) {
    note(`${step}: failed after ${elapsed()}`)
    throw err
  } finally {
    clearInterval(timer)
  }
}

/** One line for whoever watches, on standard error. */
export function note(line: string): void {
  process.stderr.write(`${line}\n`)
}
