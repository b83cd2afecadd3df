import { dirname } from 'node:path/posix'
import express, { type Express, type NextFunction, type Request, type Response } from 'express'
import type { Logger } from 'pino'
import { messageOf } from '../../runtime/errors.ts'
import { Contents } from './contents.ts'
import { answerFromMemory } from './fast-path.ts'
import { listen, type ListenOptions, type Listening } from './listen.ts'
import { parseTarget } from './request-target.ts'
import { always, ChangedWhileSentError, revalidate, sendFile } from './send-file.ts'
import { latestName } from '../storage/paths.ts'
import type { HistoryQuery, Storage } from '../storage/storage.ts'

/** After how many seconds a client may find what is being rebuilt now. */
const retryAfterSeconds = '5'
const forever = 'public, max-age=31536000, immutable, no-transform'

/** What is served, and what its owner is asked and told. */
export interface FileServerOptions {
  storage: Pick<Storage, 'look' | 'open' | 'find'>
  /** How many bytes of artifacts may be kept in memory; 0 for none. Defaults to 64 MiB. */
  memoryBytes?: number | undefined
  state: {
    /** Whether all that should be stored has been verified or rebuilt. Before that nothing is known to be missing for good. */
    ready(): boolean
    /** Whether a live Artifact names this path. */
    expects(path: string): boolean
    /** The path that a live Artifact names for a folder, if it is what the query asks for. */
    current(folder: string, query: HistoryQuery): string | undefined
  }
  /** Called with a path that is damaged, or missing although it should be there. */
  onDamage: (path: string) => void
  log: Logger
}

/** The server of stored files. `app` can be mounted anywhere; `listen` gives it a server of its own, with limits. */
export interface FileServer {
  app: Express
  /** `address` is `[host]:port`. */
  listen(address: string, options?: ListenOptions): Promise<Listening>
}

/**
 * Serves stored files by path, by address (`?revision=`, `?digest=`, `?time=`) and as `latest.tar.gz`, and nothing else. What is damaged, or
 * missing but expected, or missing before all is ready, is 503 with Retry-After; other misses are 404.
 */
export function makeFileServer(options: FileServerOptions): FileServer {
  const contents = new Contents(options.storage, options.memoryBytes ?? defaultMemoryBytes)
  const app = express()
  app.disable('x-powered-by')
  app.disable('etag')
  app.set('query parser', false)
  app.use((_req, res, next) => {
    res.set({ ...always, 'Cache-Control': 'no-store' })
    next()
  })
  app.use((req, res) => respond(req, res, { ...options, contents }))
  app.use((err: unknown, _req: Request, res: Response, _next: NextFunction) => fail(err, res, options.log))
  const handler = answerFromMemory(contents, app)
  return { app, listen: (address, limits) => listen(handler, address, limits) }
}

/** Artifacts are small and few: this holds all that is current in most clusters. */
const defaultMemoryBytes = 64 * 2 ** 20

interface Serving extends FileServerOptions {
  contents: Contents
}

async function respond(req: Request, res: Response, options: Serving): Promise<void> {
  if (req.method !== 'GET' && req.method !== 'HEAD')
    return answer(res.set('Allow', 'GET, HEAD'), 405, 'method not allowed')
  const target = parseTarget(req.url)
  if ('status' in target) return answer(res, target.status, target.message)
  if ('path' in target) return respondWithPath(req, res, target.path, options)
  const artifact = await options.storage.find(target.folder, target.query)
  if (!artifact) return respondToLoss(res, options.state.current(target.folder, target.query), options)
  res.set({ 'Content-Location': `/${artifact.path}` })
  const isDigest = typeof target.query === 'object' && 'digest' in target.query
  return respondWithPath(req, res, artifact.path, options, isDigest ? forever : revalidate)
}

async function respondWithPath(
  req: Request,
  res: Response,
  path: string,
  options: Serving,
  caching = revalidate,
): Promise<void> {
  const { contents, state, onDamage, log } = options
  const content = await contents.open(path)
  if (typeof content !== 'object') {
    const expected = content === 'damaged' || state.expects(path) ? path : undefined
    const latest = path.endsWith(`/${latestName}`) ? state.current(dirname(path), 'latest') : undefined
    return respondToLoss(res, latest ?? expected, options)
  }
  try {
    res.set('Cache-Control', caching)
    await sendFile(req, res, content)
  } catch (err) {
    if (err instanceof ChangedWhileSentError) {
      log.error({ path }, err.message)
      onDamage(path)
      withdraw(res)
    } else if (!res.destroyed) throw err // where it is, the client went away
  } finally {
    await content.close()
  }
}

/** There is nothing to send. `path` is what should be there, if anything. */
function respondToLoss(res: Response, path: string | undefined, { state, onDamage }: FileServerOptions): void {
  if (path !== undefined) onDamage(path)
  else if (state.ready()) return answer(res, 404, 'not found')
  unavailable(res)
}

function unavailable(res: Response): void {
  answer(res.set('Retry-After', retryAfterSeconds), 503, 'being rebuilt, try again')
}

function answer(res: Response, status: number, message: string): void {
  res.status(status).type('text/plain').send(`${message}\n`)
}

/** Too many open files, a disk that fails: it may pass, and a client that waits is better than one that gives up. */
function fail(err: unknown, res: Response, log: Logger): void {
  log.error({ error: err }, `failed to serve a file: ${messageOf(err)}`)
  withdraw(res)
}

/** Puts 503 in place of what was to be sent; a client that has got a part of it already must not take that for a whole answer. */
function withdraw(res: Response): void {
  if (res.headersSent) return void res.destroy()
  for (const name of ['Content-Length', 'Content-Range', 'Accept-Ranges', 'ETag', 'Last-Modified'])
    res.removeHeader(name)
  unavailable(res.set('Cache-Control', 'no-store'))
}
