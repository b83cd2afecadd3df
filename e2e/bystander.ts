import assert from 'node:assert/strict'
import { EventKind } from '../controllers/runtime/events.ts'
import { GitRepositoryKind } from '../controllers/git/types.ts'
import { ArtifactKind } from '../controllers/artifact/types.ts'
import { type Secret, SecretKind } from '../controllers/runtime/secret.ts'
import type { ControllerProcess } from './controller-process.ts'
import { assertServes, type Story } from './story.ts'

/** Makes the object `good` on a repository of its own, and gives what asserts that its next commit is served as ever, whatever others do. */
export async function addBystander(story: Story): Promise<() => Promise<void>> {
  const repository = await story.repository('bystander.git')
  await repository.commit({ 'app.yaml': 'a: 1\n' }, 'first')
  await story.apply('good', { url: `${story.git.url}/bystander.git` })
  await story.ready('good')
  return async () => {
    const commit = await repository.commit({ 'app.yaml': `a: ${Math.random()}\n` }, 'next')
    await story.request('good')
    await assertServes((await story.ready('good', `main@sha1:${commit}`)).status.artifact)
  }
}

/** Creates a Secret, or replaces its content. */
export async function putSecret(story: Story, name: string, texts: Record<string, string>): Promise<void> {
  const data = Object.fromEntries(
    Object.entries(texts).map(([key, text]) => [key, Buffer.from(text).toString('base64')]),
  )
  const metadata = { name, namespace: story.namespace }
  await story.client.apply<Secret>(SecretKind, { apiVersion: 'v1', kind: 'Secret', metadata, data })
}

/** Asserts that none of the texts is in a status, an Artifact, an event, the log or a metric. */
export async function assertUntold(
  story: Story,
  controller: ControllerProcess,
  secrets: readonly string[],
): Promise<void> {
  const inNamespace = { namespace: story.namespace }
  const objects = await story.client.list(GitRepositoryKind, inNamespace)
  const places = {
    status: JSON.stringify(objects.map(({ status }) => status)),
    artifacts: JSON.stringify(await story.client.list(ArtifactKind, inNamespace)),
    events: JSON.stringify(await story.client.list(EventKind, inNamespace)),
    log: controller.process.logs(),
    metrics: await controller.metrics(),
  }
  for (const [place, text] of Object.entries(places)) {
    assert.ok(text.length > 100, `the ${place} say nothing: the test has shown nothing`)
    for (const secret of secrets) assert.ok(!text.includes(secret), `${secret} is in the ${place}`)
  }
}
