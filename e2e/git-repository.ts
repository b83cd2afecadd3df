import { spawn } from 'node:child_process'
import { buffer, text } from 'node:stream/consumers'

/** What a commit does to a path: content, content with a mode, a symbolic link, a submodule's commit, or (null) its removal. */
export type Change =
  | string
  | Buffer
  | { content: string | Buffer; mode: 0o644 | 0o755 }
  | { symlink: string }
  | { submodule: string }
  | null

export interface CommitOptions {
  /** Defaults to `main`. */
  branch?: string
  /** Seconds since 1970. Defaults to a minute after the previous commit of this object. */
  time?: number
  /** Starts a new history instead of continuing the branch's. */
  orphan?: boolean
}

/** An entry of a tree that is written as it is, however hostile. */
export interface RawEntry {
  mode: string
  name: string | Buffer
  /** The object's id, or the content of a blob that is written for it. */
  oid?: string
  content?: string
}

/** A bare repository for tests. Identities and dates are fixed, so that equal calls give equal commits. */
export interface Repository {
  dir: string
  /** Commits on top of the branch, which is made where it is missing. Returns the commit's id. */
  commit(changes: Record<string, Change>, message: string, options?: CommitOptions): Promise<string>
  /** Tags a commit (default: the tip of `main`); annotated where a message is given. */
  tag(name: string, options?: { target?: string; message?: string }): Promise<void>
  branch(name: string, target: string): Promise<void>
  /** Deletes any ref by its full name. */
  remove(ref: string): Promise<void>
  /** Commits a tree that no check has looked at; `.git`, `../x` and the like are written as given. Returns the commit's id. */
  rawTree(entries: RawEntry[], message: string, options?: CommitOptions): Promise<string>
  /** Runs git in it; returns standard output. */
  git(args: string[], input?: string | Buffer): Promise<string>
}

const identity = 'A Tester <tester@example.com>'

/** Makes an empty bare repository in `dir`, whose HEAD is `main`. */
export async function makeRepository(dir: string): Promise<Repository> {
  await run(['init', '--quiet', '--bare', '--initial-branch=main', '--', dir])
  let clock = 1_700_000_000
  const git = (args: string[], input?: string | Buffer) => run(['--git-dir', dir, ...args], input)

  const tip = async (branch: string) => (await git(['for-each-ref', '--format=%(objectname)', branch])).trim()

  async function commit(changes: Record<string, Change>, message: string, options: CommitOptions = {}) {
    const { branch = 'main', time = (clock += 60), orphan = false } = options
    const ref = `refs/heads/${branch}`
    const parent = orphan ? '' : await tip(ref)
    const head = [`commit ${ref}`, `author ${identity} ${time} +0000`, `committer ${identity} ${time} +0000`]
    const parts = [Buffer.from(`${head.join('\n')}\n`), data(message)]
    if (parent) parts.push(Buffer.from(`from ${parent}\n`))
    for (const [path, change] of Object.entries(changes)) parts.push(fileCommand(path, change))
    if (orphan) parts.unshift(Buffer.from(`reset ${ref}\n\n`))
    await git(['fast-import', '--quiet', '--force', '--date-format=raw-permissive'], Buffer.concat(parts))
    return await tip(ref)
  }

  async function rawTree(entries: RawEntry[], message: string, options: CommitOptions = {}) {
    const { branch = 'main', time = (clock += 60) } = options
    const rows: Buffer[] = []
    for (const { mode, name, oid, content } of entries) {
      const id = oid ?? (await git(['hash-object', '-w', '--stdin'], content ?? '')).trim()
      rows.push(Buffer.from(`${mode} `), Buffer.from(name), Buffer.from([0]), Buffer.from(id, 'hex'))
    }
    const tree = await git(['hash-object', '-w', '-t', 'tree', '--literally', '--stdin'], Buffer.concat(rows))
    const who = `${identity} ${time} +0000`
    const parent = options.orphan ? '' : await tip(`refs/heads/${branch}`)
    const header = `tree ${tree.trim()}\n${parent && `parent ${parent}\n`}author ${who}\ncommitter ${who}\n\n`
    const id = (await git(['hash-object', '-w', '-t', 'commit', '--stdin'], `${header}${message}\n`)).trim()
    await git(['update-ref', `refs/heads/${branch}`, id])
    return id
  }

  async function tag(
    name: string,
    { target = 'refs/heads/main', message }: { target?: string; message?: string } = {},
  ) {
    const oid = (await git(['rev-parse', '--verify', target])).trim()
    if (message === undefined) await git(['update-ref', `refs/tags/${name}`, oid])
    else {
      const body = `object ${oid}\ntype commit\ntag ${name}\ntagger ${identity} ${(clock += 60)} +0000\n\n${message}\n`
      const id = (await git(['hash-object', '-w', '-t', 'tag', '--stdin'], body)).trim()
      await git(['update-ref', `refs/tags/${name}`, id])
    }
  }

  return {
    dir,
    git,
    commit,
    rawTree,
    tag,
    branch: async (name, target) => void (await git(['update-ref', `refs/heads/${name}`, target])),
    remove: async (ref) => void (await git(['update-ref', '-d', ref])),
  }
}

function fileCommand(path: string, change: Change): Buffer {
  const name = JSON.stringify(path)
  if (change === null) return Buffer.from(`D ${name}\n`)
  if (typeof change === 'string' || Buffer.isBuffer(change)) return modify('100644', name, change)
  if ('symlink' in change) return modify('120000', name, change.symlink)
  if ('submodule' in change) return Buffer.from(`M 160000 ${change.submodule} ${name}\n`)
  return modify(change.mode === 0o755 ? '100755' : '100644', name, change.content)
}

function modify(mode: string, name: string, content: string | Buffer): Buffer {
  return Buffer.concat([Buffer.from(`M ${mode} inline ${name}\n`), data(content)])
}

function data(content: string | Buffer): Buffer {
  const body = typeof content === 'string' ? Buffer.from(content) : content
  return Buffer.concat([Buffer.from(`data ${body.length}\n`), body, Buffer.from('\n')])
}

async function run(args: string[], input: string | Buffer = ''): Promise<string> {
  const child = spawn('git', args, { env: { PATH: process.env['PATH'], LC_ALL: 'C', ...isolated } })
  const exit = new Promise<number | null>((resolve, reject) => child.on('close', resolve).on('error', reject))
  child.stdin.on('error', () => undefined) // a process that ends early says why on its standard error
  child.stdin.end(input)
  const [out, err] = await Promise.all([buffer(child.stdout), text(child.stderr)])
  if ((await exit) !== 0) throw new Error(`git ${args.join(' ')}: ${err}`)
  return out.toString()
}

/** The user's and the machine's configuration must not change what a test does. */
export const isolated = { GIT_CONFIG_NOSYSTEM: '1', GIT_CONFIG_GLOBAL: '/dev/null', GIT_TERMINAL_PROMPT: '0' }
