import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { Parser } from 'tar'
import { request } from 'undici'
import { isolated } from '../../git-repository.ts'

/** The SHA-256 of each file by its path. */
export type Content = ReadonlyMap<string, string>

/** What a commit holds, by `git archive`. */
export async function contentOfCommit(repository: string, commit: string): Promise<Content> {
  const git = spawn('git', ['--git-dir', repository, 'archive', '--format=tar', commit], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { PATH: process.env['PATH'], ...isolated },
  })
  const exit = new Promise<number | null>((resolve, reject) => git.on('close', resolve).on('error', reject))
  const content = await contentOfTar(git.stdout)
  if ((await exit) !== 0) throw new Error(`git archive of ${commit} failed`)
  return content
}

/** What a stored archive holds. Throws unless the bytes have the digest (`sha256:<hex>`) that the object tells. */
export async function contentOfArtifact({ url, digest }: { url: string; digest: string }): Promise<Content> {
  const { statusCode, body } = await request(url)
  if (statusCode !== 200) throw new Error(`${url} answered ${statusCode}`)
  const hash = createHash('sha256')
  const content = await contentOfTar(hashed(body, hash))
  if (`sha256:${hash.digest('hex')}` !== digest) throw new Error(`${url} has another digest than ${digest}`)
  return content
}

/** What a tar.gz file holds. */
export function contentOfFile(file: string): Promise<Content> {
  return contentOfTar(createReadStream(file))
}

/** Throws, naming a path, unless both hold the same files. */
export function assertSame(actual: Content, expected: Content, whose: string): void {
  for (const [path, digest] of expected)
    if (actual.get(path) !== digest)
      throw new Error(`${whose}: ${path} is ${actual.has(path) ? 'different' : 'missing'}`)
  for (const path of actual.keys()) if (!expected.has(path)) throw new Error(`${whose}: ${path} should not be there`)
}

async function* hashed(chunks: AsyncIterable<Buffer>, hash: ReturnType<typeof createHash>): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    hash.update(chunk)
    yield chunk
  }
}

async function contentOfTar(bytes: AsyncIterable<Buffer>): Promise<Content> {
  const content = new Map<string, string>()
  const parser = new Parser({
    strict: true,
    onReadEntry(entry) {
      const hash = createHash('sha256')
      entry.on('data', (chunk) => void hash.update(chunk))
      entry.on('end', () => void (entry.type === 'File' && content.set(entry.path, hash.digest('hex'))))
    },
  })
  const done = new Promise<void>((resolve, reject) => parser.on('end', resolve).on('error', reject))
  await Promise.all([done, pipeline(bytes, async (chunks) => feed(parser, chunks))])
  return content
}

async function feed(parser: Parser, chunks: AsyncIterable<Buffer>): Promise<void> {
  for await (const chunk of chunks)
    if (!parser.write(chunk)) await new Promise<void>((resolve) => parser.once('drain', resolve))
  parser.end()
}
