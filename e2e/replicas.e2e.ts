import assert from 'node:assert/strict'
import { mkdtemp } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { LeaseKind } from '../controllers/runtime/lease.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import type { ControllerProcess } from './controller-process.ts'
import { assertServes, get, sha256, Story } from './story.ts'

const flags = [
  '--enable-leader-election',
  '--leader-election-lease-duration=4s',
  '--leader-election-renew-deadline=3s',
  '--leader-election-retry-period=500ms',
  '--storage-adv-addr=artifacts.example:80',
]

describe('two replicas', () => {
  let story: Story
  before(async () => void (story = await Story.open()))
  after(() => story.close())

  /** The replica that holds the lease, and the other one. */
  async function roles(
    replicas: ControllerProcess[],
  ): Promise<{ leader: ControllerProcess; standby: ControllerProcess }> {
    return eventually(async () => {
      const lease = await story.client.get(LeaseKind, { namespace: story.namespace, name: 'openflux-gitrepository' })
      const leader = replicas.find(({ process }) => lease?.spec?.holderIdentity?.includes(`_${process.pid}_`))
      const standby = replicas.find((replica) => replica !== leader)
      return leader && standby && { leader, standby }
    })
  }

  it('both serve and are Ready on a shared folder, one writes, and the other takes over without a failed download', async () => {
    const repository = await story.repository('app.git')
    await repository.commit({ 'app.yaml': 'a: 1\n' }, 'first')
    const replicas = [await story.startController({ flags }), await story.startController({ flags })]
    await story.apply('app')
    const { artifact } = (await story.ready('app')).status
    const { leader, standby } = await roles(replicas)
    for (const replica of replicas) {
      await story.untilReady(replica)
      await assertServes({ url: `${replica.storageUrl}/${artifact.path}`, digest: artifact.digest })
    }
    assert.match(await leader.metrics(), /controller_runtime_reconcile_total\{controller="gitrepository"/)
    assert.doesNotMatch(await standby.metrics(), /controller_runtime_reconcile_total\{controller="gitrepository"/)

    let downloads = 0
    let stopped = false
    const downloading = (async () => {
      while (!stopped) {
        const { status, bytes } = await get(`${standby.storageUrl}/${artifact.path}`)
        assert.equal(status, 200, bytes.toString().slice(0, 200))
        assert.equal(sha256(bytes), artifact.digest)
        downloads++
        await delay(10)
      }
    })()
    leader.process.kill('SIGKILL')
    await leader.process.exited
    const commit = await repository.commit({ 'app.yaml': 'a: 2\n' }, 'second')
    await story.request('app')
    const next = (await story.ready('app', `main@sha1:${commit}`)).status.artifact
    stopped = true
    await downloading
    assert.ok(downloads > 0)
    await assertServes({ url: `${standby.storageUrl}/${next.path}`, digest: next.digest })
    await story.untilReady(standby)

    const stranger = await story.startController({ flags, storage: await mkdtemp(join(story.folder, 'other-')) })
    await eventually(async () => {
      const { ready, text } = await stranger.readiness()
      assert.equal(ready, false)
      assert.match(text, /standby without the leader's storage/)
      return true
    })
  })
})
