import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { cp, readdir, readFile, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { eventually } from '../../runtime/eventually.ts'
import { registry } from '../../runtime/metrics.ts'
import { anonymous, basicAccess } from '../access/access.ts'
import { openStage, type Stage } from '../test-support.ts'
import type { Mirror } from './mirror.ts'

describe('mirrors', function () {
  this.timeout(60_000)
  let stage: Stage
  let url: string
  let first: string
  let signal: AbortSignal

  beforeEach(() => {
    signal = AbortSignal.timeout(60_000)
  })

  beforeEach(async () => {
    stage = await openStage()
    const repository = await stage.server.repository('app.git')
    url = `${stage.server.url}/app.git`
    first = await repository.commit({ 'a.txt': 'one' }, 'first')
  })
  afterEach(() => stage.close())

  const mirrorOf = () => stage.mirrors.mirrorFor(url, anonymous)

  const use = async (mirror: Mirror) => (await mirror.fetchCommit({ sha: first }, signal)).release()

  it('go when nobody has used it for a while', async () => {
    const other = basicAccess('me', 'x')
    await use(mirrorOf())
    await use(stage.mirrors.mirrorFor(url, other))
    const names = () => readdir(join(stage.cacheFolder, 'mirrors'))
    assert.equal((await names()).length, 2)
    await stage.mirrors.sweep(60_000)
    assert.equal((await names()).length, 2)
    const lease = await mirrorOf().fetchCommit({ sha: first }, signal)
    await eventually(() => stage.mirrors.sweep(10).then(async () => (await names()).length === 1))
    lease.release()
    await eventually(() =>
      stage
        .open()
        .sweep(10)
        .then(async () => (await names()).length === 0),
    )
    await use(mirrorOf())
  })

  it('go although a process that was to remove one has died half-way', async () => {
    const mirror = mirrorOf()
    await use(mirror)
    const folder = join(stage.cacheFolder, 'mirrors')
    await cp(join(folder, mirror.key), join(folder, `${mirror.key}.removed`), { recursive: true })
    await eventually(() => stage.mirrors.sweep(10).then(async () => (await readdir(folder)).length === 0))
  })

  it('go although something else is among them that is none', async () => {
    const mirror = mirrorOf()
    await use(mirror)
    const folder = join(stage.cacheFolder, 'mirrors')
    // Before and behind it, whatever the order in which they are listed.
    for (const name of ['0', 'z']) {
      await writeFile(join(folder, name), '')
      await utimes(join(folder, name), 0, 0)
    }
    await eventually(() => stage.mirrors.sweep(10).then(async () => (await readdir(folder)).length === 2))
    assert.match(stage.warnings[0]!, /^mirror '[0z]' not swept: /)
  })

  it('go when all together take too much: first the one that nobody has used for longest, and never one in use', async () => {
    const mirrors = stage.open({ maxBytes: 250_000 })
    const commits: Record<string, string> = {}
    for (const name of ['a', 'b', 'c']) {
      const other = await stage.server.repository(`${name}.git`)
      commits[name] = await other.commit({ 'x.bin': randomBytes(100_000) }, name)
    }
    const leaseOf = (name: string) => {
      const mirror = mirrors.mirrorFor(`${stage.server.url}/${name}.git`, anonymous)
      return mirror.fetchCommit({ sha: commits[name]! }, signal)
    }
    const urls = async () => {
      const folder = join(stage.cacheFolder, 'mirrors')
      const texts = (await readdir(folder)).map((name) => readFile(join(folder, name, 'url'), 'utf8'))
      return (await Promise.all(texts)).map((text) => text.slice(stage.server.url.length + 1, -5)).toSorted()
    }
    const held = await leaseOf('a')
    for (const name of ['b', 'c']) (await leaseOf(name)).release()
    await eventually(async () => (await urls()).join() === 'a,c')
    assert.equal((await mirrorMetrics()).openflux_git_mirrors, 2)
    assert.ok((await mirrorMetrics()).openflux_git_mirror_bytes! > 200_000)
    held.release()
    ;(await leaseOf('b')).release()
    await eventually(async () => (await urls()).length === 2)
    assert.ok((await urls()).includes('b'))
    const other = stage.open({ maxBytes: 1 })
    await other.sweep()
    assert.equal((await urls()).length, 2, 'a standby removes none of those that the leader may be reading')
    other.mirrorFor(url, anonymous)
    await other.sweep()
    assert.deepEqual(await urls(), [])
  })
})

async function mirrorMetrics(): Promise<Record<string, number>> {
  const lines = (await registry.metrics()).split('\n').filter((line) => line.startsWith('openflux_git_'))
  return Object.fromEntries(lines.map((line) => [line.split(' ')[0], Number(line.split(' ')[1])]))
}
