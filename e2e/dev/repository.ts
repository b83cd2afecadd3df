import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { GitRepositorySpec } from '../../controllers/git/types.ts'
import { makeRepository, startGitServer } from '../git-server.ts'

/** A repository to follow. */
export interface DevRepository {
  spec: Pick<GitRepositorySpec, 'url' | 'ref'>
  /** What it is, for people. */
  shown: string
  stop(): Promise<void>
}

const run = promisify(execFile)
const project = join(import.meta.dirname, '../..')

/** The repository at a URL, at its default branch unless another is named; or else this project's own checkout, served on loopback. */
export async function openRepository(url: string | undefined, branch: string | undefined): Promise<DevRepository> {
  if (!url) return serveCheckout()
  const name = branch ?? (await defaultBranch(url))
  return { spec: { url, ref: { branch: name } }, shown: `${url} (${name})`, stop: async () => undefined }
}

async function defaultBranch(url: string): Promise<string> {
  const { stdout } = await run('git', ['ls-remote', '--symref', '--', url, 'HEAD'], { timeout: 30_000 })
  return /^ref: refs\/heads\/(\S+)\s+HEAD$/m.exec(stdout)?.[1] ?? 'master'
}

async function serveCheckout(): Promise<DevRepository> {
  const git = async (...args: string[]) => (await run('git', ['-C', project, ...args])).stdout.trim()
  const commit = await git('rev-parse', '--verify', 'HEAD').catch(() => undefined)
  if (!commit) return serveCopy()
  const dir = await git('rev-parse', '--absolute-git-dir')
  const branch = await git('symbolic-ref', '--short', 'HEAD').catch(() => undefined) // a detached HEAD has none
  const server = await startGitServer({ repositories: { 'openflux.git': dir } })
  const ref = branch ? { branch } : { commit }
  return {
    spec: { url: `${server.url}/openflux.git`, ref },
    shown: `this checkout (${branch ?? commit})`,
    stop: () => server.stop(),
  }
}

/** What was unpacked from an archive has no history: a small one of its own will do. */
async function serveCopy(): Promise<DevRepository> {
  const root = await mkdtemp(join(tmpdir(), 'openflux-copy-'))
  const repository = await makeRepository(join(root, 'openflux.git'))
  const names = ['README.md', 'package.json', 'tsconfig.json']
  const files = await Promise.all(
    names.map(async (name) => [name, await readFile(join(project, name), 'utf8')] as const),
  )
  await repository.commit(Object.fromEntries(files), 'a copy of this folder')
  const server = await startGitServer({ root })
  const stop = async () => {
    await server.stop()
    await rm(root, { recursive: true, force: true })
  }
  return { spec: { url: `${server.url}/openflux.git`, ref: { branch: 'main' } }, shown: 'a copy of this folder', stop }
}
