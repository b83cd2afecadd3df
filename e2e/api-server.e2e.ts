import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import type { ControllerProcess } from './controller-process.ts'
import { sharedControlPlane } from './shared-control-plane.ts'
import { assertServes, Story } from './story.ts'

describe('an API server that is away for a while', () => {
  let story: Story
  before(async () => void (story = await Story.open()))
  after(() => story.close())

  it('stops no download, and what happened meanwhile is dealt with after', async () => {
    const repository = await story.repository('app.git')
    await repository.commit({ 'app.yaml': 'a: 1\n' }, 'first')
    const controller = await story.startController()
    await story.apply('app', { interval: '5s' })
    const { artifact } = (await story.ready('app')).status
    const before = await requestsOf(controller)

    const controlPlane = await sharedControlPlane()
    const restarting = controlPlane.restartApiServer(8_000)
    const commit = await repository.commit({ 'app.yaml': 'a: 2\n' }, 'second')
    for (let i = 0; i < 5; i++) {
      await delay(1_000)
      await assertServes(artifact)
    }
    await restarting
    await story.ready('app', `main@sha1:${commit}`)
    await story.untilReady(controller)
    const requests = (await requestsOf(controller)) - before
    assert.ok(requests < 300, `${requests} requests: a hot loop`)
  })
})

/** How many requests a controller has sent to the API server and heard an answer to. */
async function requestsOf(controller: ControllerProcess): Promise<number> {
  const counts = (await controller.metrics()).matchAll(/^rest_client_requests_total\{.*\} (\d+)$/gm)
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0)
}
