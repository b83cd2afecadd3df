import assert from 'node:assert/strict'
import type { Repository } from '../../../e2e/git-server.ts'
import { anonymous } from '../access/access.ts'
import { failureOf, openStage, type Stage } from '../test-support.ts'
import { scopeDigest } from './scope.ts'

describe('looking up paths in large folders', function () {
  this.timeout(60_000)
  let stage: Stage
  let repository: Repository
  let blob: string

  before(async () => {
    stage = await openStage()
    repository = await stage.server.repository('app.git')
    blob = (await repository.git(['hash-object', '-w', '--stdin'], 'x')).trim()
  })
  after(() => stage.close())

  const files = (count: number) =>
    Array.from({ length: count }, (_, n) => ({ mode: '100644', name: `f${String(n).padStart(6, '0')}`, oid: blob }))

  function lookUp(sha: string, branch: string, paths: string[]): Promise<string> {
    const mirror = stage.mirrors.mirrorFor(`${stage.server.url}/app.git`, anonymous)
    const signal = AbortSignal.timeout(60_000)
    return scopeDigest({ mirror, sha, ref: `refs/heads/${branch}`, signal }, paths)
  }

  it('takes hardly longer for many paths than for one', async () => {
    const entries = files(50_000)
    const sha = await repository.rawTree(entries, 'many files', { branch: 'wide' })
    const names = entries.map(({ name }) => name)
    await lookUp(sha, 'wide', names.slice(0, 1))
    const took = async (paths: string[]) => {
      const startedAt = performance.now()
      await lookUp(sha, 'wide', paths)
      return performance.now() - startedAt
    }
    const [one, many] = [await took(names.slice(-1)), await took(names.slice(-1000))]
    // Were the folder read through for each of them, it would be hundreds of times.
    assert.ok(many < 20 * one, `${one} ms for one, ${many} ms for a thousand`)
  })

  it('ends where the folders on the way are too large together', async () => {
    const rows = files(25_000).flatMap(({ mode, name }) => [Buffer.from(`${mode} ${name}\0`), Buffer.from(blob, 'hex')])
    const treeWith = (rest: Buffer[]) =>
      repository.git(
        ['hash-object', '-w', '-t', 'tree', '--literally', '--stdin'],
        Buffer.concat([...rest.slice(0, 2), ...rows, ...rest.slice(2)]),
      )
    let oid = (await treeWith([])).trim()
    for (let depth = 0; depth < 20; depth++)
      oid = (await treeWith([Buffer.from('40000 d\0'), Buffer.from(oid, 'hex')])).trim()
    const sha = await repository.rawTree([{ mode: '40000', name: 'd', oid }], 'deep', { branch: 'deep' })
    const path = (depth: number) => [...Array.from({ length: depth }, () => 'd'), 'f000007'].join('/')
    assert.match(await lookUp(sha, 'deep', [path(3)]), /^[0-9a-f]{64}$/)
    const { reason, message } = await failureOf(lookUp(sha, 'deep', [path(21)]))
    assert.equal(reason, 'TooManyFiles')
    assert.match(message, /^the folders above a path take more than 16777216 bytes$/)
  })
})
