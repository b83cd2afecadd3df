import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { readdir, rm, stat, utimes } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { messageOf } from '../../runtime/errors.ts'
import { SharedCalls } from '../../runtime/shared-calls.ts'
import { anonymous, type Access } from '../access/access.ts'
import { removeLeftCredentialFiles } from '../credential-files.ts'
import { localEnvironment, type GitHome } from '../environment.ts'
import { DiskUse } from './disk-use.ts'
import { Mirror } from './mirror.ts'
import { ObjectMemory } from './object-memory.ts'
import { HttpRemote } from '../protocol/http-remote.ts'
import { SshRemote, type SshAlgorithms } from '../ssh/remote.ts'
import { defaultRefLimits, type RefLimits, type Remote } from '../protocol/remote.ts'

export interface MirrorsOptions {
  /** Private to this controller; may be shared by its replicas. Made where it is missing. */
  cacheFolder: string
  /** Limit of one repository's size on disk. Defaults to 4 GiB. */
  maxRepositoryBytes?: number
  /** Limit of all of them together. Those used last stay, and those in use in any case. Defaults to 20 GiB. */
  maxBytes?: number
  /** Commits of one repository that stay fetched. Defaults to 64. */
  maxCommits?: number
  /** Packs of one repository, of which more become one. Defaults to 32. */
  maxPacks?: number
  refLimits?: RefLimits
  sshAlgorithms?: SshAlgorithms | undefined
  /** Where git is looked for. Defaults to the PATH of this process. */
  path?: string
  warn?(message: string, url: string): void
}

/** One bare mirror per URL and credentials, below one folder. */
export interface Mirrors {
  /** What every git process gets, and other tools that work for one of these repositories. */
  readonly home: GitHome
  /** The mirror of a URL that has been checked. Touches no disk and no network. */
  mirrorFor(url: string, access: Access): Mirror
  /** Deletes the mirrors that nobody has used for `idleMs`, and more where all take too much; whoever needs one again fetches again. */
  sweep(idleMs?: number): Promise<void>
}

const defaultMaxRepositoryBytes = 4 * 1024 ** 3
const defaultMaxBytes = 20 * 1024 ** 3
const defaultIdleMs = 24 * 3_600_000
const removed = '.removed'

/** Throws where the folder cannot be used or there is no git. */
export function makeMirrors(options: MirrorsOptions): Mirrors {
  const folder = join(resolve(options.cacheFolder), 'mirrors')
  const home: GitHome = {
    home: join(resolve(options.cacheFolder), 'home'),
    // The one thing of the surroundings that git cannot do without.
    path: options.path ?? process.env['PATH'] ?? '/usr/bin:/bin',
    run: join(resolve(options.cacheFolder), 'run'),
  }
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  mkdirSync(home.home, { recursive: true, mode: 0o500 })
  void removeLeftCredentialFiles(home.run)
  const { error, status } = spawnSync('git', ['--version'], { env: localEnvironment(home), timeout: 30_000 })
  if (error || status !== 0) throw new Error('git cannot be run', { cause: error })
  return new MirrorPool(folder, home, options)
}

class MirrorPool implements Mirrors {
  readonly #folder: string
  readonly home: GitHome
  readonly #options: MirrorsOptions
  readonly #mirrors = new Map<string, Mirror>()
  readonly #memory = new ObjectMemory()
  readonly #use: DiskUse
  readonly #trims = new SharedCalls<void>()

  constructor(folder: string, home: GitHome, options: MirrorsOptions) {
    this.#folder = folder
    this.home = home
    this.#options = options
    this.#use = new DiskUse(options.maxBytes ?? defaultMaxBytes)
  }

  mirrorFor(url: string, access: Access): Mirror {
    const key = createHash('sha256').update(`${url}\0${access.key}`).digest('hex').slice(0, 40)
    let mirror = this.#mirrors.get(key)
    if (!mirror) this.#mirrors.set(key, (mirror = this.#make(key, url, access)))
    mirror.remote.access = access // the same one, perhaps with a newer token
    mirror.touch()
    return mirror
  }

  async sweep(idleMs: number = defaultIdleMs): Promise<void> {
    const oldMs = Date.now() - idleMs
    for (const name of await readdir(this.#folder)) await this.#tend(name, oldMs).catch(this.#failedAt(name))
    // Who has asked for none is a standby: it does not know which ones are being read.
    if (this.#mirrors.size > 0) await this.#trim()
    for (const [key, mirror] of this.#mirrors) if (mirror.usedAtMs < oldMs) this.#mirrors.delete(key)
  }

  /** Removes one mirror if it is old, or what is left of it; else looks at what it takes. */
  async #tend(name: string, oldMs: number): Promise<void> {
    const path = join(this.#folder, name)
    const mirror = this.#mirrors.get(name)
    const usedMs = mirror ? await noteUse(path, mirror.usedAtMs) : await lastUse(path)
    if (name.endsWith(removed)) await rm(path, { recursive: true, force: true })
    else if (usedMs < oldMs) await this.#remove(name)
    else await this.#measure(name)
  }

  /** What cannot be removed must not keep all others. */
  #failedAt(name: string): (err: unknown) => void {
    return (err) => this.#options.warn?.(`mirror '${name}' not swept: ${messageOf(err)}`, '')
  }

  async #remove(key: string): Promise<void> {
    const patience = AbortSignal.timeout(1_000)
    await this.#mirrorAt(key)
      .remove(patience)
      .catch((err: unknown) => {
        // Another process works on it right now, and so keeps it young.
        if (!patience.aborted) throw err
      })
    await this.#measure(key)
  }

  /** Of those that other processes have made nothing but the folder is known. */
  #mirrorAt(key: string): Mirror {
    return this.#mirrors.get(key) ?? this.#make(key, '', anonymous)
  }

  async #measure(key: string): Promise<void> {
    this.#use.note(key, await this.#mirrorAt(key).sizeBytes())
  }

  /** In the background, as whoever has just fetched something need not wait for it. */
  #changed(key: string, url: string): void {
    const work = async () => {
      await this.#measure(key)
      await this.#trims.run('', new AbortController().signal, () => this.#trim())
    }
    work().catch((err: unknown) => this.#options.warn?.(`mirrors not swept: ${messageOf(err)}`, url))
  }

  async #trim(): Promise<void> {
    if (!this.#use.isTooMuch) return
    const names = this.#use.names.filter((name) => !this.#mirrors.get(name)?.isInUse)
    const aged = await Promise.all(
      names.map(async (name) => ({ name, usedMs: await this.#usedMs(join(this.#folder, name), name) })),
    )
    for (const { name } of aged.toSorted((a, b) => a.usedMs - b.usedMs)) {
      if (!this.#use.isTooMuch) return
      await this.#remove(name).catch(this.#failedAt(name))
    }
  }

  async #usedMs(path: string, name: string): Promise<number> {
    return this.#mirrors.get(name)?.usedAtMs ?? (await lastUse(path))
  }

  #make(key: string, url: string, access: Access): Mirror {
    const { maxRepositoryBytes = defaultMaxRepositoryBytes, maxCommits = 64, maxPacks = 32 } = this.#options
    return new Mirror({
      key,
      folder: join(this.#folder, key),
      home: this.home,
      remote: this.#remote(url, access),
      maxBytes: maxRepositoryBytes,
      maxCommits,
      maxPacks,
      memory: this.#memory,
      warn: (message) => this.#options.warn?.(message, url),
      changed: () => this.#changed(key, url),
    })
  }

  #remote(url: string, access: Access): Remote {
    const { refLimits: limits = defaultRefLimits, sshAlgorithms: algorithms } = this.#options
    if (!url.startsWith('ssh://')) return new HttpRemote(url, access, limits)
    return new SshRemote(url, access, { home: this.home, limits, algorithms })
  }
}

/** When a mirror was used is only known to the process that used it, until it is written down. */
async function noteUse(path: string, usedMs: number): Promise<number> {
  const used = new Date(usedMs)
  await utimes(join(path, 'url'), used, used).catch(() => undefined) // nothing has been fetched yet
  return usedMs
}

async function lastUse(path: string): Promise<number> {
  return await stat(join(path, 'url')).then(
    (s) => s.mtimeMs,
    () =>
      stat(path).then(
        (s) => s.mtimeMs,
        () => Infinity,
      ), // a folder that is just being made or removed
  )
}
