import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readdir, readFile, stat } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { loadAll } from 'js-yaml'
import { type Extraction, ExtractionKind } from '../consumer-sdk/sample/extraction.ts'
import { type GitRepository, GitRepositoryKind } from '../controllers/git/types.ts'
import { getCondition } from '../controllers/runtime/conditions.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import type { Kind, KubeObject } from '../controllers/runtime/kind.ts'
import type { Repository } from './git-server.ts'
import { Story } from './story.ts'
import { type SupervisedProcess, startProcess } from './tools/process.ts'

const project = join(import.meta.dirname, '..')
const CrdKind: Kind<KubeObject> = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  kind: 'CustomResourceDefinition',
  plural: 'customresourcedefinitions',
  namespaced: false,
}

describe('a consumer in a process of its own', () => {
  let story: Story
  let repository: Repository
  let consumer: SupervisedProcess
  let root: string

  before(async () => {
    story = await Story.open()
    root = join(story.folder, 'extracted')
    repository = await story.repository('app.git')
    await repository.commit(
      {
        '.sourceignore': '*.md\n/hidden/\n',
        'app.yaml': 'a: 1\n',
        'run.sh': { content: '#!/bin/sh\n', mode: 0o755 },
        'notes.md': 'n\n',
        'hidden/x': 'x\n',
        'dir/b.yaml': 'b\n',
      },
      'first',
    )
    for (const crd of loadAll(await readFile(join(project, 'consumer-sdk/sample/crd.yaml'), 'utf8')))
      await story.client.apply(CrdKind, crd as KubeObject)
    await eventually(async () => (await story.client.list(ExtractionKind, { namespace: story.namespace })).length === 0)
    await story.startController()
    consumer = await startConsumer()
  })
  after(async () => {
    await consumer?.stop()
    await story?.close()
  })

  const startConsumer = () =>
    startProcess({
      name: 'extraction',
      command: process.execPath,
      args: [
        join(project, 'consumer-sdk/sample/extraction.ts'),
        `--kubeconfig=${story.kubeconfig}`,
        '--watch-all-namespaces=false',
        `--runtime-namespace=${story.namespace}`,
        '--metrics-addr=127.0.0.1:0',
        '--health-addr=127.0.0.1:0',
      ],
      env: { ...process.env, EXTRACTION_ROOT: root },
    })

  const extract = (name: string, source = 'app') =>
    story.client.create(ExtractionKind, {
      apiVersion: 'samples.openflux.example/v1alpha1',
      kind: 'Extraction',
      metadata: { name, namespace: story.namespace },
      spec: { sourceRef: { kind: 'GitRepository', name: source } },
    })

  const read = async (name: string): Promise<Extraction> =>
    (await story.client.get(ExtractionKind, { namespace: story.namespace, name }))!

  const applied = (name: string, digest: string) =>
    eventually(async () => {
      const object = await read(name)
      return object.status?.lastAppliedDigest === digest && object
    })

  /** How often the consumer was called for an object: its own count of successes. */
  const calls = async (name: string) =>
    (await story.events(name, 'ReconciliationSucceeded')).reduce((sum, { count }) => sum + count, 0)

  /** The regular files of a commit that its rules do not leave out: path, executable bit and the id of the content. */
  async function expectedFiles(ignored: RegExp): Promise<string[]> {
    const lines = (await repository.git(['ls-tree', '-r', 'main'])).trim().split('\n')
    const files = lines.map((line) => /^(\d+) blob (\S+)\t(.*)$/.exec(line)!)
    const kept = files.filter(([, , , path]) => !ignored.test(path!))
    return kept.map(([, mode, id, path]) => `${path} ${mode === '100755' ? 'x' : '-'} ${id}`).toSorted()
  }

  async function extractedFiles(name: string): Promise<string[]> {
    const folder = join(root, story.namespace, name)
    const entries = await readdir(folder, { recursive: true, withFileTypes: true })
    const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
    const told = files.map(async (path) => {
      const bytes = await readFile(path)
      // A blob's id is the SHA-1 of its type, length and content (gitformat-pack).
      const id = createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex')
      return `${relative(folder, path)} ${(await stat(path)).mode & 0o100 ? 'x' : '-'} ${id}`
    })
    return (await Promise.all(told)).toSorted()
  }

  it('waits for a source that is not there yet, and is called once when it is', async () => {
    await extract('early')
    await eventually(async () => getCondition(await read('early'), 'Ready')?.reason === 'ArtifactNotFound')
    await story.apply('app')
    const { artifact } = (await story.ready('app')).status
    await applied('early', artifact.digest)
    assert.equal(getCondition(await read('early'), 'Ready')?.status, 'True')
    assert.equal(await eventually(() => calls('early')), 1)
  })

  it('extracts exactly the files of the tree less the ignored ones', async () => {
    assert.deepEqual(await extractedFiles('early'), await expectedFiles(/\.md$|^hidden\/|^\.git/))
    assert.equal(await readFile(join(root, story.namespace, 'early', 'app.yaml'), 'utf8'), 'a: 1\n')
  })

  it('is called once for a new commit, and not for a poke of the source that brings nothing new', async () => {
    const before = await calls('early')
    const commit = await repository.commit({ 'app.yaml': 'a: 2\n', 'dir/b.yaml': null, 'more/c.yaml': 'c\n' }, 'second')
    await story.request('app')
    const { artifact } = (await story.ready('app', `main@sha1:${commit}`)).status
    await applied('early', artifact.digest)
    await story.poke('app')
    await story.poke('app')
    assert.deepEqual(await extractedFiles('early'), await expectedFiles(/\.md$|^hidden\/|^\.git/))
    assert.equal(await eventually(async () => (await calls('early')) - before), 1)
  })

  it('does nothing again after a restart of its own', async () => {
    const before = await calls('early')
    await consumer.stop()
    consumer = await startConsumer()
    await extract('late')
    await eventually(async () => getCondition(await read('late'), 'Ready')?.status === 'True')
    assert.equal(await calls('early'), before)
  })

  it('still gets the last artifact while upstream is down and our controller was restarted', async () => {
    story.git.behaviour.down = true
    await story.stopControllers()
    const controller = await story.startController()
    await story.untilReady(controller)
    await extract('while-down')
    await eventually(async () => getCondition(await read('while-down'), 'Ready')?.status === 'True')
    story.git.behaviour.down = false
    await story.ready('app')
  })

  it('hears at once of the deletion of its source, and what it has extracted stays', async () => {
    await story.client.delete(GitRepositoryKind, { namespace: story.namespace, name: 'app' })
    await eventually(async () => getCondition(await read('early'), 'Ready')?.reason === 'ArtifactNotFound')
    assert.ok((await extractedFiles('early')).length > 0)
  })

  it('hears of a source that was deleted while our controller was down, from the garbage collector', async () => {
    await story.apply('orphan')
    await story.ready('orphan')
    await extract('of-orphan', 'orphan')
    await eventually(async () => getCondition(await read('of-orphan'), 'Ready')?.status === 'True')
    await story.stopControllers()
    const key = { namespace: story.namespace, name: 'orphan' }
    await story.client.delete(GitRepositoryKind, key)
    // Nobody is there to let go of it: somebody forces it away, as people do.
    await story.client.patch<GitRepository>(GitRepositoryKind, key, { metadata: { finalizers: null } })
    await eventually(async () => (await story.artifact('orphan')) === undefined, 90_000)
    await eventually(async () => getCondition(await read('of-orphan'), 'Ready')?.reason === 'ArtifactNotFound')
    const controller = await story.startController({ flags: ['--artifact-retention-ttl=1s'] })
    await story.untilReady(controller)
    await eventually(async () => {
      // The namespace's folder goes as well when it is the last one.
      const left = await readdir(join(story.storage, 'gitrepository', story.namespace)).catch((): string[] => [])
      return !left.includes('orphan')
    })
  })
})
