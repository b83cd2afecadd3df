import { execFile } from 'node:child_process'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import { dirname, join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { isolated } from './git-repository.ts'
import { findGitLfs, type GitLfs } from './tools/git-lfs.ts'
import { listen } from './tools/port.ts'
import { startProcess } from './tools/process.ts'
import { temporaryFolder } from './tools/temporary.ts'

/** An answer of the batch API, to be altered. */
export interface BatchAnswer {
  objects: {
    oid: string
    size: number
    authenticated?: boolean
    error?: { code: number; message: string }
    actions?: { download?: { href: string; header?: Record<string, string>; expires_in?: number; expires_at?: string } }
  }[]
  transfer?: string
  hash_algo?: string
}

/** A request that has come. */
export interface LfsRequest {
  method: string
  path: string
  authorization: string | undefined
  /** Of the batch API: how many objects it names. */
  objects: number
}

/** The server of Git LFS's own tests behind a relay that sees and may alter what passes. Batch requests need `user` and `pass`. */
export interface LfsServer {
  /** `http://127.0.0.1:<port>`. A repository's API is at `<url>/<name>.git/info/lfs`. */
  url: string
  requests: LfsRequest[]
  /** Alters the answers of the batch API, or replaces them by a text. */
  alter: ((answer: BatchAnswer) => void | string) | undefined
  /** Answers in the server's place where it returns true. */
  answer: ((request: IncomingMessage, response: ServerResponse) => boolean) | undefined
  /** Commits files in a new repository of Git LFS and uploads those that match `*.bin`; gives the folder. */
  commit(name: string, files: Record<string, string | Buffer>): Promise<string>
  /** The same, and serves the commit at `<url>/<name>.git`, branch `main`. */
  publish(name: string, files: Record<string, string | Buffer>): Promise<void>
  stop(): Promise<void>
}

const run = promisify(execFile)
const mediaType = 'application/vnd.git-lfs+json'
const authorization = `Basic ${Buffer.from('user:pass').toString('base64')}`

/** Starts the server on loopback, which is built first where it must be. */
export async function startLfsServer(): Promise<LfsServer> {
  const programs = await findGitLfs()
  const folder = await temporaryFolder()
  const state = Object.fromEntries(
    ['URL', 'SSL_URL', 'CLIENT_CERT_URL', 'CERT', 'CLIENT_CERT', 'CLIENT_KEY', 'CLIENT_KEY_ENCRYPTED'].map((name) => {
      return [`LFSTEST_${name}`, join(folder, name)]
    }),
  )
  const env = { PATH: process.env['PATH'], LFSTEST_DIR: folder, ...state }
  const real = await startProcess({ name: 'lfstest-gitserver', command: programs.server, env, cwd: folder })
  await real.waitUntil(() =>
    readFile(join(folder, 'CLIENT_KEY_ENCRYPTED')).then(
      (bytes) => bytes.length > 0,
      () => false,
    ),
  )
  const upstream = await readFile(join(folder, 'URL'), 'utf8')

  const lfs: LfsServer = {
    url: '',
    requests: [],
    alter: undefined,
    answer: undefined,
    commit: async (name, files) => {
      const work = await commit({ folder: join(folder, 'work', name), name, files, url: lfs.url, programs })
      lfs.requests.length = 0
      return work
    },
    publish: async (name, files) => {
      const work = await lfs.commit(name, files)
      await run('git', ['clone', '--quiet', '--bare', work, join(folder, `${name}.git`)], {
        env: { ...env, ...isolated },
      })
    },
    stop: async () => {
      server.closeAllConnections()
      server.close()
      await real.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
  const server = createServer((request, response) => {
    void relay(lfs, upstream, request, response).catch(() => response.destroy()) // the other side has gone
  })
  lfs.url = `http://127.0.0.1:${await listen(server)}`
  return lfs
}

async function relay(
  lfs: LfsServer,
  upstream: string,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const body = await buffer(request)
  const path = request.url ?? '/'
  const { method = 'GET', headers } = request
  const batch = path.endsWith('/objects/batch')
  const objects = batch ? (JSON.parse(body.toString()) as BatchAnswer).objects.length : 0
  lfs.requests.push({ method, path, authorization: headers.authorization, objects })
  if (lfs.answer?.(request, response)) return
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    httpRequest(`${upstream}${path}`, { method, headers }, resolve).on('error', reject).end(body)
  })
  response.writeHead(answer.statusCode ?? 500, batch ? { 'content-type': mediaType } : answer.headers)
  if (!batch || answer.statusCode !== 200) return void answer.pipe(response)
  const text = (await buffer(answer)).toString().replaceAll(upstream, lfs.url)
  const altered = JSON.parse(text) as BatchAnswer
  response.end(lfs.alter?.(altered) ?? JSON.stringify(altered))
}

interface CommitOptions {
  folder: string
  name: string
  files: Record<string, string | Buffer>
  url: string
  programs: GitLfs
}

async function commit({ folder, name, files, url, programs }: CommitOptions): Promise<string> {
  const identity = {
    GIT_AUTHOR_NAME: 'A',
    GIT_AUTHOR_EMAIL: 'a@x',
    GIT_COMMITTER_NAME: 'A',
    GIT_COMMITTER_EMAIL: 'a@x',
  }
  const env = { PATH: `${dirname(programs.client)}:${process.env['PATH']}`, ...identity, ...isolated, HOME: folder }
  await mkdir(folder, { recursive: true })
  const git = (...args: string[]) => run('git', args, { cwd: folder, env })
  await git('init', '--quiet', '--initial-branch=main')
  await git('lfs', 'install', '--local')
  await git('lfs', 'track', '*.bin')
  await git('config', `http.${url}/.extraHeader`, `Authorization: ${authorization}`)
  await git('remote', 'add', 'origin', `${url}/${name}.git`)
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), content)
  }
  await git('add', '--all')
  await git('commit', '--quiet', '--message', 'files')
  await git('lfs', 'push', '--all', 'origin')
  return folder
}
