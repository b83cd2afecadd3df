import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { eventually } from '../controllers/runtime/eventually.ts'
import { freePort } from './tools/port.ts'
import { assertServes, get, sha256, Story } from './story.ts'

/** How often the controller is killed. */
const kills = 20

describe('a controller that is killed while it stores', () => {
  let story: Story
  before(async () => void (story = await Story.open()))
  after(() => story.close())

  it(`serves no wrong byte, loses nothing and leaves no rubbish, ${kills} times at random moments`, async function () {
    this.timeout(600_000)
    const seed = Date.now() % 1_000_000
    console.log(`      seed ${seed}`)
    let state = seed
    // The low bits of such a generator have short periods.
    const random = (n: number) => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 8) % n

    const repository = await story.repository('app.git')
    const content = (i: number) => ({ 'big.bin': randomBytes(3_000_000), 'app.yaml': `i: ${i}\n` })
    let commit = await repository.commit(content(0), 'commit 0')
    const storageAddress = `127.0.0.1:${await freePort()}`
    const start = () => story.startController({ storageAddress, flags: ['--artifact-retention-ttl=10m'] })
    let controller = await start()
    await story.apply('app')
    await story.ready('app')

    const watcher = watchDownloads(story, 'app')
    let interrupted = 0
    for (let i = 1; i <= kills; i++) {
      commit = await repository.commit(content(i), `commit ${i}`)
      const asked = story.git.requests().requests
      await story.request('app')
      await eventually(() => story.git.requests().requests > asked) // the pass has begun
      await delay(random(600))
      if ((await story.read('app')).status?.artifact?.revision !== `main@sha1:${commit}`) interrupted++
      controller.process.kill('SIGKILL')
      await controller.process.exited
      controller = await start()
      await story.untilReady(controller)
    }
    await story.ready('app', `main@sha1:${commit}`)
    const seen = await watcher.stop()
    console.log(`      ${interrupted} of ${kills} kills came amid a store; ${watcher.downloads()} downloads`)
    assert.ok(interrupted >= kills / 4, 'too few kills hit a store: the test has shown little')

    for (const artifact of seen) await assertServes(artifact)
    assert.deepEqual((await filesIn(story.storage)).filter(isRubbish), [])
  })
})

async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  return entries
    .filter((entry) => !entry.isDirectory())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
}

/** Whether a file below the storage is neither an artifact, nor a record of ours, nor a finished part of a mirror. */
function isRubbish(path: string): boolean {
  if (path.startsWith('.openflux/git/')) return /\/(tmp_|\.tmp)|\.lock$/.test(path)
  if (path.startsWith('.openflux/')) return !/^\.openflux\/(id$|blobs\/)/.test(path)
  return !/^gitrepository\/[^/]+\/app\/([0-9a-f-]+\.tar\.gz|latest\.tar\.gz|\.history\.json)$/.test(path)
}

/** Downloads what the Artifact names, again and again, and remembers every artifact it has seen. */
function watchDownloads(story: Story, name: string) {
  const seen = new Map<string, { url: string; digest: string }>()
  let stopped = false
  let downloads = 0
  let fatal: Error | undefined
  const loop = async (): Promise<void> => {
    while (!stopped) {
      const { url, digest } = (await story.artifact(name))!.spec!
      seen.set(url, { url, digest: digest! })
      // A connection that is refused or cut is the killed process; what must not be is a whole answer that is wrong.
      const answer = await get(url).catch(() => undefined)
      if (answer?.status === 200) {
        downloads++
        if (sha256(answer.bytes) !== digest) fatal ??= new Error(`${url} did not match ${digest}`)
      } else if (answer && answer.status !== 503) fatal ??= new Error(`${url}: HTTP ${answer.status}`)
      await delay(20)
    }
  }
  const running = loop()
  return {
    downloads: () => downloads,
    async stop() {
      stopped = true
      await running
      if (fatal) throw fatal
      return [...seen.values()]
    },
  }
}
