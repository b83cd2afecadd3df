import assert from 'node:assert/strict'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { startLyingGitServer, type LyingGitServer } from '../../../e2e/lying-git-server.ts'
import { eventually } from '../../runtime/eventually.ts'
import { anonymous, basicAccess } from '../access/access.ts'
import { openContent } from '../content/content.ts'
import { HttpRemote } from '../protocol/http-remote.ts'
import { commandsWith } from '../ssh/test-support.ts'
import { failureOf, openStage, readAll, type Stage } from '../test-support.ts'

describe('a Git server that lies', function () {
  this.timeout(60_000)
  let stage: Stage
  let server: LyingGitServer
  let first: string
  let second: string

  before(async () => {
    stage = await openStage()
    server = await startLyingGitServer(stage.server.url)
    const repository = await stage.server.repository('app.git')
    first = await repository.commit({ 'a.txt': 'one' }, 'first')
    second = await repository.commit({ 'a.txt': 'two' }, 'second')
  })
  after(async () => {
    await server.stop()
    await stage.close()
  })

  async function filesFrom(path: string, signal = AbortSignal.timeout(30_000), access = anonymous) {
    const mirror = stage.mirrors.mirrorFor(`${server.url}/${path}/app.git`, access)
    const content = await openContent({ mirror, sha: first, ref: 'refs/heads/main', signal })
    try {
      return await readAll(content.entries)
    } finally {
      await content.close()
    }
  }

  /** The packs of all mirrors. */
  async function packs(): Promise<string[]> {
    const names = await readdir(join(stage.cacheFolder, 'mirrors'), { recursive: true })
    return names.filter((name) => name.endsWith('.pack'))
  }

  it('gets nothing stored for another commit than the one that was asked for', async () => {
    const err = await failureOf(filesFrom(`want=${second}`))
    assert.equal(err.reason, 'GitOperationFailed')
    assert.match(err.message, new RegExp(first))
    assert.deepEqual(await packs(), [])
    assert.deepEqual(await filesFrom(`want=${first}`), { 'a.txt': 'one' })
  })

  it('gets nothing stored for a pack with a wrong checksum', async () => {
    const before = await packs()
    assert.match((await failureOf(filesFrom('checksum'))).message, /pack is corrupted \(SHA1 mismatch\)/)
    assert.deepEqual(await packs(), before)
  })

  it('is told from an honest one after 64 MiB of refs, whatever it goes on to say', async () => {
    const query = { prefixes: ['refs/heads/main'], keep: (name: string) => name === 'refs/heads/main', enough: 1 }
    const remote = new HttpRemote(`${server.url}/refs/app.git`, anonymous)
    const err = await failureOf(remote.listRefs(query, AbortSignal.timeout(30_000)))
    assert.match(err.message, /the answer is longer than 67108864 bytes$/)
  })

  it('can send progress without end until the time is over, and then no process is left', async () => {
    const timeout = new AbortController()
    const asked = failureOf(filesFrom('progress', timeout.signal))
    const processes = () => commandsWith(`${server.url}/progress/`)
    await eventually(async () => (await processes()).size >= 2) // git and its helper
    timeout.abort(new DOMException('the time is over', 'TimeoutError'))
    assert.match((await asked).message, /: timed out$/)
    await eventually(async () => (await processes()).size === 0)
  })

  it('cannot upset a terminal with its last word, nor tell the credentials that it was sent', async () => {
    const { message } = await failureOf(filesFrom('error', undefined, basicAccess('me', 'hunter2')))
    assert.match(message, /you said me:\*\*\*/)
    assert.doesNotMatch(message, /\p{Cc}|hunter2|owned/u)
  })
})
