import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { startLfsServer, type LfsServer } from '../../../e2e/lfs-server.ts'
import { eventually } from '../../runtime/eventually.ts'
import { defaultListingLimits as listingLimits } from '../content/listing.ts'
import { makeGitSource } from '../source.ts'
import { contextOf, objectOf, openStage, readAll, type Stage } from '../test-support.ts'

describe('a GitRepository with Git LFS', function () {
  this.timeout(120_000)
  let stage: Stage
  let lfs: LfsServer

  before(async () => {
    ;[stage, lfs] = await Promise.all([openStage(), startLfsServer()])
  })
  after(() => Promise.all([stage.close(), lfs.stop()]))

  it('has the files that its pointers stand for only where the spec says so', async () => {
    const large = 'a line\n'.repeat(300_000)
    await lfs.publish('app', { 'dir/large.bin': large, 'text.txt': 'text' })
    const source = makeGitSource({ mirrors: stage.mirrors, listingLimits })
    const context = () => contextOf(undefined, { user: { username: 'user', password: 'pass' } })

    async function offered(more: { lfs?: boolean }) {
      const spec = { url: `${lfs.url}/app.git`, ref: { branch: 'main' }, secretRef: { name: 'user' } }
      const obj = objectOf({ ...spec, ...more })
      const fetched = await source.fetch(obj, await source.resolve(obj, context()), context())
      const { '.gitattributes': _, ...files } = await readAll(fetched.entries)
      await fetched.close?.()
      return { files, contentKey: fetched.contentKey }
    }

    const [without, having] = [await offered({}), await offered({ lfs: true })]
    const oid = createHash('sha256').update(large).digest('hex')
    const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${oid}\nsize ${large.length}\n`
    assert.deepEqual(without.files, { 'dir/large.bin': pointer, 'text.txt': 'text' })
    assert.deepEqual(having.files, { 'dir/large.bin': large, 'text.txt': 'text' })
    assert.notEqual(having.contentKey, without.contentKey)
  })

  it('counts the objects towards the limit of all mirrors', async () => {
    await lfs.publish('heavy', { 'large.bin': 'a line\n'.repeat(300_000) })
    const cacheFolder = join(stage.folder, 'small')
    const source = makeGitSource({ mirrors: stage.open({ cacheFolder, maxBytes: 1_000_000 }), listingLimits })
    const obj = objectOf({
      url: `${lfs.url}/heavy.git`,
      ref: { branch: 'main' },
      secretRef: { name: 'user' },
      lfs: true,
    })
    const ctx = contextOf(undefined, { user: { username: 'user', password: 'pass' } })
    const fetched = await source.fetch(obj, await source.resolve(obj, ctx), ctx)
    await readAll(fetched.entries)
    assert.equal((await readdir(join(cacheFolder, 'mirrors'))).length, 1)
    await fetched.close?.()
    await eventually(async () => (await readdir(join(cacheFolder, 'mirrors'))).length === 0)
  })
})
