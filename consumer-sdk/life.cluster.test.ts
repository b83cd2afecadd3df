import assert from 'node:assert/strict'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { sharedControlPlane } from '../e2e/shared-control-plane.ts'
import { getCondition } from '../controllers/runtime/conditions.ts'
import { ReconcileError } from '../controllers/runtime/errors.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import { finalizer } from './reconciler.ts'
import { ExtractionKind } from './sample/extraction.ts'
import { ConsumerRun, RoleKind } from './test-run.ts'

const owners = [{ apiVersion: 'ghosts.example/v1', kind: 'Ghost', name: 'app', uid: 'one' }]
const sourceRef = { apiVersion: 'ghosts.example/v1', kind: 'Ghost', name: 'app' }

describe('life of a consuming object', function () {
  this.timeout(120_000)
  let run: ConsumerRun
  let finalized: number

  beforeEach(async () => {
    finalized = 0
    run = await ConsumerRun.open()
    await run.publish('app', { owners, content: '1' })
  })
  afterEach(() => run[Symbol.asyncDispose]())

  /** With `finalize`, which fails the first time, and the further right that it takes. */
  async function startFinalizing(): Promise<void> {
    const rule = { apiGroups: [ExtractionKind.group], resources: [ExtractionKind.plural], verbs: ['patch'] }
    const role = { namespace: run.namespace, name: 'extraction' }
    const { rules } = (await run.admin.get(RoleKind, role))!
    await run.admin.patch(RoleKind, role, { rules: [...rules, rule] })
    run.start(() => ({
      finalize: async () => {
        if (finalized++ === 0) throw new ReconcileError('PruneFailed', 'not at once')
      },
    }))
  }
  const remove = () => run.admin.delete(ExtractionKind, { namespace: run.namespace, name: 'x' })
  const gone = () =>
    eventually(async () => !(await run.admin.get(ExtractionKind, { namespace: run.namespace, name: 'x' })))

  it('undoes the work before the object goes, and tries until that has worked', async () => {
    await startFinalizing()
    await run.create('x', { sourceRef })
    assert.deepEqual((await run.until('x', 'True')).metadata.finalizers, [finalizer])
    await remove()
    await gone()
    assert.equal(finalized, 2)
    const events = await eventually(async () => {
      const found = await run.events('x', 'PruneFailed')
      return found.length > 0 && found
    })
    assert.equal(events[0]?.message, 'not at once')
  })

  it('lets a suspended object go as it is', async () => {
    await startFinalizing()
    await run.create('x', { sourceRef })
    await run.until('x', 'True')
    await run.patch('x', { spec: { suspend: true } })
    await remove()
    await gone()
    assert.equal(finalized, 0)
  })

  it('ends a pass that takes longer than spec.timeout', async () => {
    run.start((sample) => ({
      async reconcile(obj, artifact, ctx) {
        if (obj.spec.timeout === '200ms') await once(ctx.signal, 'abort')
        ctx.signal.throwIfAborted()
        return sample.reconcile(obj, artifact, ctx)
      },
    }))
    await run.create('x', { sourceRef, timeout: '200ms' })
    const late = await run.until('x', 'False', 'Timeout')
    assert.match(getCondition(late, 'Ready')?.message ?? '', /spec\.timeout \(0\.2s\)/)
    await run.patch('x', { spec: { timeout: '1m' } })
    await run.until('x', 'True')
  })

  it('accepts the longest timeout and interval that can be written', async () => {
    run.start()
    await run.create('x', { sourceRef, timeout: '999999999m', interval: '999999999h' })
    await run.until('x', 'True')
    await run.create('y', { sourceRef, timeout: '1m0.0001s' })
    await run.until('y', 'True')
    await delay(300)
    assert.equal(run.calls.length, 2)
  })

  it('refers to other namespaces where that is allowed', async () => {
    const { kubeconfig } = await sharedControlPlane()
    await using other = await ConsumerRun.open()
    await run.publish('theirs', { owners: [{ ...owners[0]!, name: 'theirs' }], content: 'from elsewhere' })
    const everywhere = ['--watch-all-namespaces=true', `--watch-label-selector=test=${run.namespace}`]
    other.start(undefined, [`--kubeconfig=${kubeconfig}`, '--no-cross-namespace-refs=false', ...everywhere])
    await other.create('x', { sourceRef: { ...sourceRef, name: 'theirs', namespace: run.namespace } })
    await other.patch('x', { metadata: { labels: { test: run.namespace } } })
    await other.until('x', 'True')
    assert.equal(await other.content('x'), 'from elsewhere')
  })
})
