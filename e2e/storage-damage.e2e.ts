import assert from 'node:assert/strict'
import { appendFile, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { eventually } from '../controllers/runtime/eventually.ts'
import { assertServes, get, sha256, Story } from './story.ts'

describe('damage to the storage', () => {
  let story: Story
  const address = `127.0.0.1:${20_000 + (process.pid % 20_000)}`

  before(async () => {
    story = await Story.open()
    const repository = await story.repository('app.git')
    await repository.commit({ 'app.yaml': 'a: 1\n'.repeat(1000) }, 'words')
    await story.startController({ storageAddress: address })
    for (const name of ['one', 'two', 'three']) await story.apply(name)
    for (const name of ['one', 'two', 'three']) await story.ready(name)
  })
  after(() => story.close())

  const artifactOf = async (name: string) => (await story.ready(name)).status.artifact

  /** Asks for a file until it is served; every answer before must be a 503 that says when to come again. */
  async function untilServed({ url, digest }: { url: string; digest: string }): Promise<void> {
    await eventually(async () => {
      const { status, headers, bytes } = await get(url)
      if (status === 200) {
        assertDigest(bytes, digest)
        return true
      }
      if (status !== 503) fatal = new Error(`${url}: HTTP ${status}`)
      if (!headers['retry-after']) fatal = new Error(`${url}: 503 without Retry-After`)
      return false
    })
    if (fatal) throw fatal
  }
  let fatal: Error | undefined

  /** Waits for the file itself: a request would be a poke. */
  async function untilBack({ path, digest }: { path: string; digest: string }): Promise<void> {
    await eventually(async () => {
      const bytes = await readFile(join(story.storage, path)).catch(() => undefined) // not there yet
      return bytes !== undefined && sha256(bytes) === digest
    })
  }

  function assertDigest(bytes: Buffer, digest: string): void {
    if (sha256(bytes) !== digest) fatal = new Error('bytes were served that do not match their digest')
  }

  it('is noticed at the next pass when bytes were appended: an event, and the right bytes again', async () => {
    const artifact = await artifactOf('one')
    await appendFile(join(story.storage, artifact.path), 'X')
    await story.poke('one')
    await assertServes(artifact)
    const [event] = await eventually(async () => {
      const events = await story.events('one', 'ArtifactVerificationFailed')
      return events.length > 0 && events
    })
    assert.equal(event!.type, 'Warning')
  })

  it('is never served, neither through the damaged name nor through another name of the same file', async () => {
    const [one, two] = [await artifactOf('one'), await artifactOf('two')]
    assert.equal(one.digest, two.digest)
    await appendFile(join(story.storage, one.path), 'X')
    await Promise.all([untilServed(two), untilServed(one)])
  })

  it('heals without a poke when a file is removed', async () => {
    const artifact = await artifactOf('one')
    await rm(join(story.storage, artifact.path))
    await untilBack(artifact)
    await assertServes(artifact)
  })

  it('heals without a poke when the whole folder is emptied', async () => {
    const artifacts = await Promise.all(['one', 'two', 'three'].map(artifactOf))
    for (const name of await readdir(story.storage))
      await rm(join(story.storage, name), { recursive: true, force: true })
    await Promise.all(artifacts.map(untilBack))
    for (const artifact of artifacts) await assertServes(artifact)
  })

  it('answers 503 while it heals, and nothing wrong', async () => {
    const artifacts = await Promise.all(['one', 'two', 'three'].map(artifactOf))
    for (const name of await readdir(story.storage))
      await rm(join(story.storage, name), { recursive: true, force: true })
    await Promise.all(artifacts.map(untilServed))
  })

  it('heals before it is Ready when the folder was emptied while the controller was down', async () => {
    const artifacts = await Promise.all(['one', 'two', 'three'].map(artifactOf))
    await story.stopControllers()
    for (const name of await readdir(story.storage))
      await rm(join(story.storage, name), { recursive: true, force: true })
    const controller = await story.startController({ storageAddress: address })
    await Promise.all(artifacts.map(untilServed))
    await story.untilReady(controller)
    for (const artifact of artifacts) await assertServes(artifact)
  })
})
