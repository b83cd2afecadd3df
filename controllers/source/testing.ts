import assert from 'node:assert/strict'
import { appendFile, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { artifactFolder } from '../artifact/artifact.ts'
import { ArtifactKind } from '../artifact/types.ts'
import { getCondition } from '../runtime/conditions.ts'
import { requestedAtAnnotation } from '../runtime/controller.ts'
import { eventually } from '../runtime/eventually.ts'
import { apiVersionOf } from '../runtime/kind.ts'
import { finalizer } from './reconciler.ts'
import type { Source, SourceObject } from './source.ts'
import { download, type SourceRun, startSourceRun } from './test-run.ts'
import { describeTrust } from './test-trust.ts'

/** An upstream that a conformance run can steer. */
export interface Upstream<T extends SourceObject, U> {
  source: Source<T, U>
  /** The spec of an object on this upstream; `interval` may be long, the suite asks for passes itself. */
  spec: T['spec']
  /** Lets upstream hold exactly these files: a new revision. */
  publish(files: Record<string, string>): Promise<void>
  /** Makes upstream unreachable, and reachable again. */
  setDown(down: boolean): Promise<void>
  /** To be left out by kinds that take no credentials, together with `hasCredentials: false`. */
  credentials?: {
    /** The fields of a spec that name the Secret. */
    specOf(secretName: string): Partial<T['spec']>
    /** Demands other credentials from now on; gives the data of a Secret with them, in plain text. */
    rotate(): Promise<Record<string, string>>
    /** Demands none any more. */
    lift(): void
  }
  stop(): Promise<void>
}

/** The behaviour that every kind of source owes its users, on a real API server. `makeUpstream` starts a real upstream. */
export function describeSource<T extends SourceObject, U>(
  name: string,
  makeUpstream: () => Promise<Upstream<T, U>>,
  { hasCredentials = true }: { hasCredentials?: boolean } = {},
): void {
  describeTrust(name, makeUpstream, hasCredentials)
  describe(`${name} as a source`, function () {
    this.timeout(120_000)
    let upstream: Upstream<T, U>
    let run: SourceRun<T>

    before(async () => {
      upstream = await makeUpstream()
      await upstream.publish({ 'a.yaml': 'a: 1\n', 'dir/b.yaml': 'b: 1\n', 'notes.md': 'notes\n' })
      run = await startSourceRun(upstream.source, upstream.spec)
    })
    after(async () => {
      await run?.stop()
      await upstream?.stop()
    })

    it('stores what upstream holds and says so in the same words in status and Artifact', async () => {
      await run.create('first')
      const object = await run.ready('first')
      const { url, revision, digest, size, lastUpdateTime, path } = object.status.artifact
      const artifact = (await run.artifact('first'))!
      assert.deepEqual(
        { ...artifact.spec, metadata: undefined },
        { url, revision, digest, size, lastUpdateTime, metadata: undefined },
      )
      assert.equal(path.startsWith(`${artifactFolder(upstream.source.kind, object)}/`), true)
      const [owner] = artifact.metadata.ownerReferences ?? []
      assert.deepEqual(owner, {
        apiVersion: apiVersionOf(upstream.source.kind),
        kind: upstream.source.kind.kind,
        name: 'first',
        uid: object.metadata.uid,
        controller: true,
        blockOwnerDeletion: true,
      })
      assert.ok(object.metadata.finalizers?.includes(finalizer))
      assert.equal((await download(url)).statusCode, 200)
    })

    it('satisfies kstatus: observed generation, Ready, and neither Reconciling nor Stalled', async () => {
      const object = await run.ready('first')
      assert.equal(object.status.observedGeneration, object.metadata.generation)
      assert.equal(getCondition(object, 'ArtifactInStorage')?.status, 'True')
      assert.match(getCondition(object, 'Ready')!.message, /^stored artifact/)
      for (const type of ['Reconciling', 'Stalled', 'FetchFailed', 'ArtifactOutdated', 'SourceVerified'])
        assert.equal(getCondition(object, type), undefined)
    })

    it('fetches nothing while upstream has not changed', async () => {
      const before = run.fetches()
      const { status } = await run.ready('first')
      const object = await run.poke('first')
      assert.equal(run.fetches(), before)
      assert.deepEqual(object.status?.artifact, status.artifact)
    })

    it('gives two objects on one upstream the same digest', async () => {
      await run.create('second')
      const [first, second] = [await run.ready('first'), await run.ready('second')]
      assert.equal(first.status.artifact.digest, second.status.artifact.digest)
    })

    it('stores a new revision, tells of it, and keeps the previous file for those who are downloading it', async () => {
      const old = await run.ready('first')
      await upstream.publish({ 'a.yaml': 'a: 2\n' })
      const object = await run.poke('first')
      assert.notEqual(object.status?.artifact?.revision, old.status.artifact.revision)
      assert.notEqual(object.status?.artifact?.digest, old.status.artifact.digest)
      assert.equal((await run.artifact('first'))?.spec?.digest, object.status?.artifact?.digest)
      assert.equal((await download(old.status.artifact.url)).statusCode, 200)
      // Equal events are counted on one object.
      const told = async () => (await run.events('first', 'NewArtifact')).reduce((sum, { count }) => sum + count, 0)
      await eventually(async () => (await told()) >= 2)
    })

    it('builds other bytes of the same revision under another name when the ignore rules change', async () => {
      await upstream.publish({ 'a.yaml': 'a: 3\n', 'notes.md': 'notes\n' })
      const before = await run.poke('second')
      await run.client.patch(
        upstream.source.kind,
        { namespace: run.namespace, name: 'second' },
        { spec: { ignore: '*.md' } },
      )
      const object = await eventually(async () => {
        const now = await run.ready('second')
        return now.status.observedIgnore === '*.md' && now
      })
      assert.equal(object.status.artifact.revision, before.status!.artifact!.revision)
      assert.notEqual(object.status.artifact.digest, before.status!.artifact!.digest)
      assert.notEqual(object.status.artifact.url, before.status!.artifact!.url)
      assert.equal((await download(before.status!.artifact!.url)).statusCode, 200)
    })

    it('keeps and serves what it has while upstream is down, says why, and recovers', async () => {
      const before = await run.ready('first')
      await upstream.setDown(true)
      const failed = await run.poke('first')
      await upstream.setDown(false)
      assert.equal(getCondition(failed, 'Ready')?.status, 'False')
      assert.equal(getCondition(failed, 'FetchFailed')?.status, 'True')
      assert.deepEqual(failed.status?.artifact, before.status.artifact)
      assert.equal((await download(before.status.artifact.url)).statusCode, 200)
      await eventually(async () => getCondition(await run.read('first'), 'Ready')?.status === 'True')
      assert.ok(
        (await run.events('first', getCondition(failed, 'FetchFailed')!.reason)).some(({ type }) => type === 'Warning'),
      )
    })

    it('finds a damaged file, says so, and puts the right bytes back in the same pass', async () => {
      const { status } = await run.ready('first')
      await appendFile(join(run.storage, status.artifact.path), 'X')
      await run.poke('first')
      assert.equal((await download(status.artifact.url)).digest, status.artifact.digest)
      await eventually(async () => (await run.events('first', 'ArtifactVerificationFailed')).length > 0)
    })

    it('builds a file anew that has disappeared', async () => {
      const { status } = await run.ready('first')
      await rm(join(run.storage, status.artifact.path))
      await eventually(async () => (await download(status.artifact.url)).digest === status.artifact.digest)
    })

    it('puts back an Artifact that somebody has changed or deleted', async () => {
      const wanted = (await run.artifact('first'))!
      const key = { namespace: run.namespace, name: wanted.metadata.name }
      await run.client.patch(ArtifactKind, key, { spec: { url: 'http://elsewhere.example/x.tar.gz' } })
      await eventually(async () => (await run.artifact('first'))?.spec?.url === wanted.spec?.url)
      await run.client.patch(ArtifactKind, key, {
        metadata: { ownerReferences: null },
        spec: { metadata: { not: 'ours' } },
      })
      await eventually(async () => {
        const artifact = await run.artifact('first')
        return artifact?.metadata.ownerReferences?.length === 1 && !artifact.spec?.metadata?.not
      })
      await run.client.delete(ArtifactKind, key)
      await eventually(async () => (await run.artifact('first'))?.spec?.digest === wanted.spec?.digest)
    })

    it('believes its own record, not what somebody has written into the status', async () => {
      const { status } = await run.ready('first')
      const forged = { ...status.artifact, revision: 'main@sha1:0000000000000000000000000000000000000000', size: 1 }
      await run.client.patch(
        upstream.source.kind,
        { namespace: run.namespace, name: 'first' },
        { status: { artifact: forged } },
        { subresource: 'status' },
      )
      const object = await run.poke('first')
      assert.equal(object.status?.artifact?.revision, status.artifact.revision)
      assert.equal((await run.artifact('first'))?.spec?.size, status.artifact.size)
    })

    it('asks upstream no more than about once a second, however short its interval', async () => {
      const before = run.resolves()
      await run.create('hasty', { interval: '0s' })
      await run.ready('hasty')
      await delay(2_500)
      await run.client.delete(upstream.source.kind, { namespace: run.namespace, name: 'hasty' })
      const asked = run.resolves() - before
      assert.ok(asked >= 2 && asked <= 6, `${asked} times`)
    })

    it('does nothing while it is suspended, and goes on after', async () => {
      const key = { namespace: run.namespace, name: 'first' }
      await run.client.patch(upstream.source.kind, key, { spec: { suspend: true } })
      const before = await run.read('first')
      await upstream.publish({ 'a.yaml': 'a: 4\n' })
      await run.client.patch(upstream.source.kind, key, {
        metadata: { annotations: { [requestedAtAnnotation]: 'while-suspended' } },
      })
      const other = await run.poke('second')
      assert.notEqual(other.status?.artifact?.revision, before.status?.artifact?.revision)
      assert.deepEqual((await run.read('first')).status, before.status)
      await run.client.patch(upstream.source.kind, key, { spec: { suspend: false } })
      await eventually(
        async () => (await run.read('first')).status?.artifact?.revision === other.status?.artifact?.revision,
      )
    })

    it('deletes the Artifact with its source, and the files after the retention time', async () => {
      const { status } = await run.ready('second')
      await run.client.delete(upstream.source.kind, { namespace: run.namespace, name: 'second' })
      await eventually(async () => (await run.artifact('second')) === undefined)
      await eventually(async () => !(await run.read('second').catch(() => undefined)))
      await eventually(async () => {
        const folder = join(run.storage, status.artifact.path, '../..')
        return !(await readdir(folder)).includes('second')
      }, 90_000)
      assert.equal((await download(status.artifact.url)).statusCode, 404)
    })
  })
}
