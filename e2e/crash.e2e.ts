import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
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
    const random = (n: number) => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % n

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
      await story.request('app')
      await delay(random(350))
      if ((await story.read('app')).status?.artifact?.revision !== `main@sha1:${commit}`) interrupted++
      controller.process.kill('SIGKILL')
      await controller.process.exited
      controller = await start()
      await story.untilReady(controller)
    }
    await story.ready('app', `main@sha1:${commit}`)
    const seen = await watcher.stop()
    console.log(
      `      ${interrupted} of ${kills} kills came before the store was complete; ${watcher.downloads()} downloads`,
    )
    assert.ok(interrupted > 0, 'no kill hit a store: the test has shown nothing')

    for (const artifact of seen) await assertServes(artifact)
    const files = await readdir(story.storage, { recursive: true, withFileTypes: true })
    const temporary = files.filter(
      (file) => file.isFile() && file.parentPath.startsWith(join(story.storage, '.openflux', 'tmp')),
    )
    assert.deepEqual(
      temporary.map(({ name }) => name),
      [],
    )
  })
})

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
