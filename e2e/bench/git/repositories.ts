import { createHash } from 'node:crypto'
import { cp, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { makeRepository, type Repository } from '../../git-server.ts'
import { cached, cacheFolder, progress } from '../../tools/cache.ts'
import { makeRandom, manifestPath, manifests } from './documents.ts'

/** What a generated repository holds: equal shapes give equal commits. */
export interface RepositoryShape {
  seed: number
  files: number
  /** Of all files together, about. */
  bytes: number
  /** The branch `main`, and about 3 % other branches, 16 % tags (`v<major>.<minor>.<patch>`) and pull requests for the rest. */
  refs: number
}

/** The tag of the highest version that a repository of any shape has. */
export const newestTag = 'v99.0.0'

/** The bare repository of a shape, from a folder of the user's cache, where it is made once. Nobody may change it: see `copyRepository`. */
export async function generatedRepository(shape: RepositoryShape, cache = cacheFolder('bench')): Promise<string> {
  const sources = await Promise.all(
    ['documents.ts', 'repositories.ts'].map((name) => readFile(join(import.meta.dirname, name))),
  )
  const hash = createHash('sha256').update(JSON.stringify(shape))
  for (const source of sources) hash.update(source)
  const folder = join(cache, `git-${hash.digest('hex').slice(0, 16)}`)
  return cached(folder, (temporary) =>
    progress(`generating a repository of ${shape.files} files, ${shape.refs} refs (seed ${shape.seed})`, () =>
      generate(temporary, shape),
    ),
  )
}

/** A copy that may be changed. */
export async function copyRepository(from: string, to: string): Promise<Repository> {
  await cp(from, to, { recursive: true })
  return makeRepository(to)
}

async function generate(folder: string, shape: RepositoryShape): Promise<void> {
  const repository = await makeRepository(folder)
  const random = makeRandom(shape.seed)
  const meanBytes = shape.bytes / shape.files
  const files: Record<string, string> = {}
  for (let n = 0; n < shape.files; n++) {
    // Many small files and few large ones, none above eight times the mean.
    const bytes = Math.min(8, -Math.log(1 - random())) * meanBytes
    files[manifestPath(random, n)] = manifests(random, Math.max(200, bytes * 0.885))
  }
  const commits = [await repository.commit(files, 'everything')]
  const paths = Object.keys(files)
  for (let n = 1; n < historyLength; n++) {
    const path = paths[Math.floor(random() * paths.length)]!
    commits.push(await repository.commit({ [path]: `${files[path]}# change ${n}\n` }, `change ${n}`))
  }
  const updates = refNames(shape.refs - 1).map((ref, n) => `create ${ref} ${commits[n % commits.length]}\n`)
  await repository.git(['update-ref', '--stdin'], updates.join(''))
  await repository.git(['pack-refs', '--all', '--prune'])
  await repository.git(['-c', 'pack.threads=1', 'repack', '-a', '-d', '-f', '-q', '--depth=20', '--window=5'])
}

/** Commits of `main`; refs are spread over them. */
const historyLength = 5

function refNames(count: number): string[] {
  const tags = Math.ceil(count * 0.16)
  const branches = Math.floor(count * 0.03)
  const names = [`refs/tags/${newestTag}`]
  for (let n = 1; n < tags; n++) names.push(`refs/tags/v${Math.floor(n / 400)}.${Math.floor(n / 20) % 20}.${n % 20}`)
  for (let n = 0; n < branches; n++) names.push(`refs/heads/release/${n}`)
  for (let n = 1; names.length < count; n++) names.push(`refs/pull/${n}/head`)
  return names
}
