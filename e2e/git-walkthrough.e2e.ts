import assert from 'node:assert/strict'
import { getCondition } from '../controllers/runtime/conditions.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import { GitRepositoryKind } from '../controllers/git/types.ts'
import type { Repository } from './git-server.ts'
import { assertServes, get, Story } from './story.ts'

describe('the walk-through of a GitRepository', () => {
  let story: Story
  let repository: Repository
  let commit: string

  before(async () => {
    story = await Story.open()
    repository = await story.repository('app.git')
    commit = await repository.commit({ 'app.yaml': 'a: 1\n', 'dir/more.yaml': 'b: 1\n' }, 'first words')
    await story.startController()
    await story.apply('podinfo')
  })
  after(() => story.close())

  it('ends with an artifact in its status, served, and with the conditions that users know', async () => {
    const object = await story.ready('podinfo')
    const { artifact } = object.status
    assert.deepEqual(object.metadata.finalizers, ['finalizers.fluxcd.io'])
    assert.equal(artifact.revision, `main@sha1:${commit}`)
    assert.equal(artifact.path, `gitrepository/${story.namespace}/podinfo/${commit}.tar.gz`)
    assert.ok(artifact.url.endsWith(`/${artifact.path}`))
    const bytes = await assertServes(artifact)
    assert.equal(artifact.size, bytes.length)
    for (const type of ['Ready', 'ArtifactInStorage']) {
      const { status, reason, message } = getCondition(object, type)!
      assert.deepEqual(
        { status, reason, message },
        { status: 'True', reason: 'Succeeded', message: `stored artifact for revision 'main@sha1:${commit}'` },
      )
    }
  })

  it('tells of it by an event that names the commit', async () => {
    const [event] = await eventually(async () => {
      const events = await story.events('podinfo', 'NewArtifact')
      return events.length > 0 && events
    })
    assert.equal(event!.message, "stored artifact for commit 'first words'")
    assert.equal(event!.type, 'Normal')
    assert.equal(event!.metadata.annotations?.['source.toolkit.fluxcd.io/revision'], `main@sha1:${commit}`)
  })

  it('gives an Artifact that is owned by it and says the same', async () => {
    const object = await story.ready('podinfo')
    const artifact = (await story.artifact('podinfo'))!
    const { url, revision, digest, size, lastUpdateTime, metadata } = object.status.artifact
    assert.equal(artifact.metadata.name, `gitrepository-${story.namespace}-podinfo`)
    assert.deepEqual(artifact.spec, { url, revision, digest, size, lastUpdateTime, metadata })
    assert.equal(metadata?.['git.message'], 'first words')
    assert.deepEqual(artifact.metadata.ownerReferences, [
      {
        apiVersion: 'source.toolkit.fluxcd.io/v1',
        kind: 'GitRepository',
        name: 'podinfo',
        uid: object.metadata.uid,
        controller: true,
        blockOwnerDeletion: true,
      },
    ])
  })

  it('finds no change at the next pass, by one small request', async () => {
    story.git.reset()
    const before = await story.ready('podinfo')
    const object = await story.poke('podinfo')
    assert.deepEqual(object.status?.artifact, before.status.artifact)
    const [event] = await eventually(async () => {
      const events = await story.events('podinfo', 'GitOperationSucceeded')
      return events.length > 0 && events
    })
    assert.equal(event!.message, `no changes since last reconciliation: observed revision 'main@sha1:${commit}'`)
    assert.deepEqual(story.git.requests().paths, ['POST /app.git/git-upload-pack'])
  })

  it('addresses what is stored by revision, digest, time and as latest', async () => {
    const first = (await story.ready('podinfo')).status.artifact
    const between = new Date(Date.parse(first.lastUpdateTime) + 1000)
    await new Promise((resolve) => setTimeout(resolve, 2100))
    const next = await repository.commit({ 'app.yaml': 'a: 2\n' }, 'second words')
    await story.request('podinfo')
    const second = (await story.ready('podinfo', `main@sha1:${next}`)).status.artifact
    const folder = first.url.slice(0, first.url.lastIndexOf('/'))
    const address = (query: Record<string, string>) => `${folder}?${new URLSearchParams(query).toString()}`
    await assertServes({ url: address({ revision: first.revision }), digest: first.digest })
    await assertServes({ url: address({ digest: first.digest }), digest: first.digest })
    await assertServes({ url: address({ time: between.toISOString() }), digest: first.digest })
    await assertServes({ url: address({ time: new Date().toISOString() }), digest: second.digest })
    await assertServes({ url: `${folder}/latest.tar.gz`, digest: second.digest })
    assert.equal((await get(address({ revision: 'main@sha1:none' }))).status, 404)
    assert.equal((await get(`${folder}/`)).status, 404)
  })

  it('serves the last artifact while upstream is down, also after a restart of the controller', async () => {
    const { artifact } = (await story.ready('podinfo')).status
    story.git.behaviour.down = true
    const restarted = await story.startController()
    await story.untilReady(restarted)
    const failed = await story.failed('podinfo', /app\.git/)
    assert.equal(getCondition(failed, 'FetchFailed')?.reason, 'GitOperationFailed')
    // Another process has another port; what is served is the same.
    await assertServes({ url: `${restarted.storageUrl}/${artifact.path}`, digest: artifact.digest })
    assert.equal((await story.artifact('podinfo'))?.spec?.digest, artifact.digest)
    story.git.behaviour.down = false
    await story.ready('podinfo')
  })

  it('removes the Artifact with the source', async () => {
    await story.client.delete(GitRepositoryKind, { namespace: story.namespace, name: 'podinfo' })
    await eventually(async () => (await story.artifact('podinfo')) === undefined)
    // The Artifact goes first, then the source is let go.
    await eventually(() =>
      story.read('podinfo').then(
        () => false,
        () => true,
      ),
    )
  })
})
