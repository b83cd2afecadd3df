import { randomUUID } from 'node:crypto'
import { access, mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { simpleGit, type SimpleGit } from 'simple-git'
import { localEnvironment, type GitHome } from '../environment.ts'
import { runGit, startGit } from '../git.ts'

/** Refs below this one keep the commits that were asked for; nothing else in a mirror has a name. */
const keepPrefix = 'refs/openflux/keep/'

/** A bare repository on disk that holds the commits of a mirror, each with nothing but its own tree. */
export class BareRepository {
  readonly dir: string
  readonly env: Record<string, string>

  constructor(dir: string, home: GitHome) {
    this.dir = dir
    this.env = localEnvironment(home)
  }

  async exists(): Promise<boolean> {
    return await isThere(join(this.dir, 'HEAD'))
  }

  /** Makes it where it is missing; where it is there, removes what processes that died have left behind. */
  async prepare(signal: AbortSignal): Promise<void> {
    if (await this.exists()) return await this.removeRubbish()
    await rm(this.dir, { recursive: true, force: true })
    await mkdir(this.dir, { recursive: true })
    await this.#plain(signal).init(true, ['--template=', '--quiet'])
  }

  /** The refspec that fetches a commit and keeps it. */
  keeping(source: string, sha: string): string {
    return `+${source}:${keepPrefix}${sha}`
  }

  /** Names a commit that is there already. */
  async keep(sha: string, signal: AbortSignal): Promise<void> {
    await this.#plain(signal).raw(['update-ref', `${keepPrefix}${sha}`, sha])
  }

  /** Whether the commit is kept; if so, it counts as just used. */
  async isKept(sha: string): Promise<boolean> {
    const now = new Date()
    return await utimes(join(this.dir, keepPrefix, sha), now, now).then(
      () => true,
      () => false, // not there, whatever else may be the matter
    )
  }

  /** Whether the commit itself is there, kept or not. */
  async hasCommit(sha: string, signal: AbortSignal): Promise<boolean> {
    return await runGit(['--git-dir', this.dir, 'cat-file', '-e', `${sha}^{commit}`], { env: this.env, signal }).then(
      () => true,
      () => {
        signal.throwIfAborted()
        return false
      },
    )
  }

  /** The ids of the files at and below the paths of a commit that are not there. Its folders must be. */
  async missingFiles(sha: string, paths: readonly string[], signal: AbortSignal): Promise<string[]> {
    const args = ['rev-list', '--objects', '--no-object-names', '--missing=print', '--no-walk', '--end-of-options', sha]
    // The paths are no patterns, whatever is in them.
    const env = { ...this.env, GIT_LITERAL_PATHSPECS: '1' }
    const git = startGit(['--git-dir', this.dir, ...args, '--', ...paths], { env, signal })
    git.stdin.end()
    const missing: string[] = []
    for await (const line of createInterface(git.stdout)) if (line.startsWith('?')) missing.push(line.slice(1))
    await git.ended
    return missing
  }

  /** Lets go of all but the `max` commits used last. What is `inUse` stays in any case. */
  async dropOld(max: number, inUse: (sha: string) => boolean): Promise<void> {
    const folder = join(this.dir, keepPrefix)
    const names = (await listed(folder)).filter((name) => /^[0-9a-f]{40}$/.test(name))
    if (names.length <= max) return
    const aged = await Promise.all(names.map(async (sha) => ({ sha, usedMs: (await stat(join(folder, sha))).mtimeMs })))
    const old = aged.toSorted((a, b) => b.usedMs - a.usedMs).slice(max)
    await Promise.all(old.filter(({ sha }) => !inUse(sha)).map(({ sha }) => rm(join(folder, sha), { force: true })))
  }

  /** Bytes of all packs, finished or not; a mirror has hardly any other objects. */
  async sizeBytes(): Promise<number> {
    return await bytesOf(join(this.dir, 'objects/pack'))
  }

  async packCount(): Promise<number> {
    return (await listed(join(this.dir, 'objects/pack'))).filter((name) => name.endsWith('.pack')).length
  }

  /** Puts all that is still kept into one pack and forgets the rest. */
  async compact(signal: AbortSignal): Promise<void> {
    const options = { env: this.env, signal }
    await runGit(['--git-dir', this.dir, 'repack', '-a', '-d', '--quiet', '--no-write-bitmap-index'], options)
    await runGit(['--git-dir', this.dir, 'prune', '--expire=now'], options)
  }

  /** Only for the holder of the folder's lock: no living process can own what is removed here. */
  async removeRubbish(): Promise<void> {
    const pack = join(this.dir, 'objects/pack')
    const rubbish = [
      ...(await listed(pack)).filter((name) => /^tmp_|\.keep$|^\.tmp-/.test(name)).map((name) => join(pack, name)),
      ...(await listed(this.dir)).filter((name) => name.endsWith('.lock')).map((name) => join(this.dir, name)),
      ...(await listed(this.dir)).filter((name) => name.startsWith('shallow_')).map((name) => join(this.dir, name)),
      ...(await listed(join(this.dir, keepPrefix)))
        .filter((name) => name.endsWith('.lock'))
        .map((name) => join(this.dir, keepPrefix, name)),
    ]
    await Promise.all(rubbish.map((path) => rm(path, { recursive: true, force: true })))
  }

  /** Moves it out of the way first, so that a crash half-way leaves nothing that looks like a repository. */
  async remove(): Promise<void> {
    const aside = `${this.dir}.${randomUUID()}.removed`
    const moved = await rename(this.dir, aside).then(
      () => true,
      (err: NodeJS.ErrnoException) => {
        if (err.code === 'ENOENT') return false
        throw err
      },
    )
    if (moved) await rm(aside, { recursive: true, force: true })
  }

  #plain(signal: AbortSignal): SimpleGit {
    return simpleGit({
      baseDir: this.dir,
      abort: signal,
      // Its guard is for values that users bring along; these are all our own.
      allowEnvironment: Object.keys(this.env),
      unsafe: {
        allowUnsafeConfigEnvCount: true,
        allowUnsafeConfigPaths: true,
        allowUnsafeHooksPath: true,
        allowUnsafeFsMonitor: true,
        allowUnsafeCredentialHelper: true,
        allowUnsafeTemplateDir: true,
      },
    }).env(this.env)
  }
}

async function isThere(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false, // which is the answer
  )
}

/** Bytes of the files in a folder, 0 where it is missing. */
export async function bytesOf(folder: string): Promise<number> {
  const sizes = (await listed(folder)).map((name) =>
    stat(join(folder, name)).then(
      (s) => s.size,
      () => 0,
    ),
  ) // renamed meanwhile
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}

/** The names in a folder; none where it is missing. */
async function listed(folder: string): Promise<string[]> {
  return await readdir(folder).catch((err: NodeJS.ErrnoException) => {
    if (err.code === 'ENOENT') return []
    throw err
  })
}
