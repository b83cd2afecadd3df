import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { requestedAtAnnotation } from '../controllers/runtime/controller.ts'
import { ReconcileError } from '../controllers/runtime/errors.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import { getCondition } from '../controllers/runtime/conditions.ts'
import { isStatus } from '../controllers/runtime/client.ts'
import { ExtractionKind } from './sample/extraction.ts'
import { ConsumerRun, RoleKind } from './test-run.ts'

const fromConfigMap = (name: string) => ({ sourceRef: { apiVersion: 'v1', kind: 'ConfigMap', name } })
/** An owner that the garbage collector knows nothing of, so that it lets its Artifacts be. */
const ghost = (name: string, uid = 'one') => ({ apiVersion: 'ghosts.example/v1', kind: 'Ghost', name, uid })
const fromGhost = (name: string) => ({ sourceRef: { apiVersion: 'ghosts.example/v1', kind: 'Ghost', name } })
/** Long enough for a pass that should not come: the work takes some ms. */
const quietMs = 500

describe('consumer on a real API server, with the least rights', function () {
  this.timeout(120_000)
  let run: ConsumerRun

  beforeEach(async () => {
    run = await ConsumerRun.open()
  })
  afterEach(() => run[Symbol.asyncDispose]())

  it('extracts artifacts made before and after it, and tells', async () => {
    const owners = [await run.configMap('before')]
    const before = await run.publish('before', { owners, content: 'early' })
    await run.create('early', fromConfigMap('before'))
    run.start()
    const early = await run.untilApplied('early', before)
    assert.equal(await run.content('early'), 'early')
    assert.equal(early.status?.files, 1)
    assert.equal(early.status?.lastAppliedDigest, before.spec?.digest)
    assert.equal(early.status?.lastAttemptedRevision, before.spec?.revision)
    assert.equal(early.status?.observedGeneration, early.metadata.generation)
    assert.deepEqual(
      early.status?.conditions?.map(({ type }) => type),
      ['Ready'],
    )

    await run.create('late', fromConfigMap('after'))
    const waiting = await run.until('late', 'False', 'ArtifactNotFound')
    assert.equal(getCondition(waiting, 'Ready')?.message, `no artifact found for /ConfigMap/${run.namespace}/after`)
    assert.equal(getCondition(waiting, 'Reconciling')?.status, 'True')
    const after = await run.publish('after', { owners: [await run.configMap('after')], content: 'late' })
    await run.untilApplied('late', after)
    assert.equal(await run.content('late'), 'late')
    const [event] = await eventually(async () => {
      const events = await run.events('late', 'ReconciliationSucceeded')
      return events.length > 0 && events
    })
    assert.equal(event?.message, `extracted 1 files of revision ${after.spec?.revision}`)
    assert.equal(event?.type, 'Normal')
  })

  it('is called once for each new digest, and for nothing else', async () => {
    const owners = [await run.configMap('app')]
    run.start()
    await run.create('x', fromConfigMap('app'))
    const first = await run.publish('app', { owners, content: '1' })
    await run.untilApplied('x', first)
    // Another url: only the next download is concerned. Another revision: the same bytes are there already.
    await run.publish('app', { owners, content: '1', url: `${first.spec?.url}?moved` })
    const renamed = await run.publish('app', { owners, content: '1', revision: 'main@sha256:renamed' })
    await run.untilApplied('x', renamed)
    assert.equal(run.calls.length, 1)
    for (const content of ['2', '3']) await run.untilApplied('x', await run.publish('app', { owners, content }))
    assert.equal(await run.content('x'), '3')
    await delay(quietMs)
    assert.equal(run.calls.length, 3)
    // A restart is no reason either.
    await run.stop()
    run.start()
    const last = await run.publish('app', { owners, content: '3', revision: 'main@sha256:after-restart' })
    await run.untilApplied('x', last)
    assert.equal(run.calls.length, 3)
  })

  it('is called on request, for a new spec, and at each interval', async () => {
    run.start()
    await run.publish('app', { owners: [ghost('app')], content: '1' })
    await run.create('x', fromGhost('app'))
    await run.until('x', 'True')
    await run.patch('x', { metadata: { annotations: { [requestedAtAnnotation]: 'now' } } })
    await eventually(async () => (await run.read('x')).status?.lastHandledReconcileAt === 'now')
    assert.equal(run.calls.length, 2)
    await run.patch('x', { spec: { timeout: '1m' } })
    await eventually(() => run.calls.length === 3)
    await run.patch('x', { spec: { interval: '1s' } })
    await eventually(() => run.calls.length > 6)
    await run.patch('x', { spec: { suspend: true } })
    await delay(quietMs * 3)
    const calls = run.calls.length
    await run.publish('app', { owners: [ghost('app')], content: '2' })
    await delay(quietMs * 3)
    assert.equal(run.calls.length, calls)
    await run.patch('x', { spec: { suspend: null, interval: null } })
    await eventually(() => run.calls.length === calls + 1)
  })

  it('says at once that the artifact is gone, keeps what was applied, and takes the same one back without a call', async () => {
    run.start()
    await run.publish('app', { owners: [ghost('app')], content: '1' })
    await run.create('x', fromGhost('app'))
    await run.until('x', 'True')
    await run.unpublish('app')
    const gone = await run.until('x', 'False', 'ArtifactNotFound')
    assert.ok(gone.status?.lastAppliedRevision)
    assert.equal(await run.content('x'), '1')
    await run.publish('app', { owners: [ghost('app')], content: '1' })
    await run.until('x', 'True')
    assert.equal(run.calls.length, 1)
  })

  it('follows an artifact that changes its owner', async () => {
    run.start()
    await run.create('a', fromGhost('a'))
    await run.create('b', fromGhost('b'))
    await run.publish('app', { owners: [ghost('a')], content: '1' })
    await run.until('a', 'True')
    await run.publish('app', { owners: [ghost('b')], content: '1' })
    await run.until('b', 'True')
    await run.until('a', 'False', 'ArtifactNotFound')
    assert.deepEqual(
      run.calls.map(({ name }) => name),
      ['a', 'b'],
    )
  })

  it('never mixes an owner with its successor of the same name', async () => {
    run.start()
    await run.create('x', fromGhost('app'))
    await run.publish('old', { owners: [ghost('app', 'one')], content: 'old' })
    await run.until('x', 'True')
    await run.publish('new', { owners: [ghost('app', 'two')], content: 'new' })
    await run.until('x', 'False', 'OwnerReplaced')
    assert.equal(await run.content('x'), 'old')
    await run.unpublish('old')
    await run.until('x', 'True')
    assert.equal(await run.content('x'), 'new')
  })

  it('goes on with the successor when the garbage collector has taken the old artifact', async () => {
    run.start()
    await run.publish('old', { owners: [await run.configMap('app')], content: 'old' })
    await run.create('x', fromConfigMap('app'))
    await run.until('x', 'True')
    await run.deleteConfigMap('app')
    const next = await run.publish('new', { owners: [await run.configMap('app')], content: 'new' })
    await run.untilApplied('x', next)
    assert.equal(await run.content('x'), 'new')
    assert.equal(run.calls.length, 2)
  })

  it('stalls where two artifacts have one owner, and goes on when one is left', async () => {
    run.start()
    await run.publish('a', { owners: [ghost('app')], content: '1' })
    await run.publish('b', { owners: [ghost('app')], content: '2' })
    await run.create('x', fromGhost('app'))
    const stalled = await run.until('x', 'False', 'AmbiguousArtifact')
    assert.match(getCondition(stalled, 'Stalled')?.message ?? '', /: a, b$/)
    assert.equal(getCondition(stalled, 'Reconciling'), undefined)
    assert.equal(stalled.status?.observedGeneration, stalled.metadata.generation)
    await run.create('direct', { sourceRef: { kind: 'Artifact', name: 'b' } })
    await run.until('direct', 'True')
    await run.unpublish('a')
    await run.until('x', 'True')
    assert.equal(await run.content('x'), '2')
  })

  it('lets no bad object hold up a good one', async () => {
    run.start(undefined, ['--concurrent=2'])
    const owners = [ghost('app')]
    const tampered = await run.publish('tampered', { owners: [ghost('tampered')], content: 'right' })
    run.tamper(tampered, Buffer.from('wrong'))
    await run.publish('lost', { owners: [ghost('lost')], content: 'x', url: 'http://127.0.0.1:1/lost' })
    await run.publish('undigested', { owners: [ghost('undigested')], content: 'x', digest: 'md5:00' })
    await run.create('tampered', fromGhost('tampered'))
    await run.create('lost', fromGhost('lost'))
    await run.create('undigested', fromGhost('undigested'))
    await run.create('unknown-kind', { sourceRef: { kind: 'Ghost', name: 'app' } })
    await run.create('nameless', { sourceRef: { kind: 'Bucket', name: '' } })
    await run.create('elsewhere', { sourceRef: { kind: 'Bucket', name: 'a', namespace: 'kube-system' } })
    await run.create('restless', { ...fromGhost('app'), interval: '0s' })
    await run.create('good', fromGhost('app'))
    await run.publish('app', { owners, content: 'good' })
    await run.until('good', 'True')
    const expected = {
      tampered: 'DigestMismatch',
      lost: 'ArtifactFetchFailed',
      undigested: 'ArtifactInvalid',
      'unknown-kind': 'InvalidSourceRef',
      nameless: 'InvalidSourceRef',
      elsewhere: 'AccessDenied',
      restless: 'InvalidDuration',
    }
    for (const [name, reason] of Object.entries(expected)) await run.until(name, 'False', reason)
    await assert.rejects(run.content('tampered'), /ENOENT/)
    const message = `can't access 'Bucket/kube-system/a', cross-namespace references have been blocked`
    assert.equal(getCondition(await run.read('elsewhere'), 'Stalled')?.message, message)
    const [warning] = await eventually(async () => {
      const events = await run.events('tampered', 'DigestMismatch')
      return events.length > 0 && events
    })
    assert.equal(warning?.type, 'Warning')
    // A spec that is mended is taken up at once.
    await run.patch('restless', { spec: { interval: '1h' } })
    await run.until('restless', 'True')
  })

  it('tries again after a failure, with what the consumer has reported so far', async () => {
    let failures = 2
    run.start((sample) => ({
      async reconcile(obj, artifact, ctx) {
        if (failures-- > 0) {
          obj.status = { ...obj.status, files: 99 }
          throw new ReconcileError('BuildFailed', 'not today')
        }
        return sample.reconcile(obj, artifact, ctx)
      },
    }))
    await run.publish('app', { owners: [ghost('app')], content: '1' })
    await run.create('x', fromGhost('app'))
    await eventually(async () => (await run.read('x')).status?.files === 99)
    const done = await run.until('x', 'True')
    assert.equal(done.status?.files, 1)
    assert.equal(run.calls.length, 3)
  })

  it('does not lose a report that could not be written, nor call again for it', async () => {
    const role = { namespace: run.namespace, name: 'extraction' }
    const { rules } = (await run.admin.get(RoleKind, role))!
    const withoutStatus = rules.filter((rule) => !JSON.stringify(rule).includes('extractions/status'))
    run.start((sample) => ({
      async reconcile(obj, artifact, ctx) {
        await run.admin.patch(RoleKind, role, { rules: withoutStatus })
        const { namespace } = run
        const write = () => ctx.client.patch(ExtractionKind, { namespace, name: 'x' }, {}, { subresource: 'status' })
        await eventually(() =>
          write().then(
            () => false,
            (err: unknown) => isStatus(err, 403),
          ),
        )
        return sample.reconcile(obj, artifact, ctx)
      },
    }))
    await run.publish('app', { owners: [ghost('app')], content: '1' })
    await run.create('x', fromGhost('app'))
    await eventually(() => run.content('x').then(Boolean))
    await delay(quietMs)
    assert.equal((await run.read('x')).status, undefined)
    await run.admin.patch(RoleKind, role, { rules })
    assert.equal((await run.until('x', 'True')).status?.files, 1)
    assert.equal(run.calls.length, 1)
  })

  it('never writes the outcome of an object to its successor of the same name', async () => {
    const { promise: replaced, resolve: goOn } = Promise.withResolvers<void>()
    run.start((sample) => ({
      async reconcile(obj, artifact, ctx) {
        if (run.calls.length === 1) {
          await replaced
          obj.status = { ...obj.status, path: 'of the predecessor' }
          return
        }
        await delay(quietMs)
        return sample.reconcile(obj, artifact, ctx)
      },
    }))
    await run.publish('app', { owners: [ghost('app')], content: '1' })
    await run.create('x', fromGhost('app'))
    await eventually(() => run.calls.length === 1)
    await run.admin.delete(ExtractionKind, { namespace: run.namespace, name: 'x' })
    await run.create('x', fromGhost('app'))
    goOn()
    await eventually(() => run.calls.length === 2)
    assert.equal((await run.read('x')).status, undefined)
    assert.match((await run.until('x', 'True')).status?.path ?? '', /\/x$/)
  })
})
