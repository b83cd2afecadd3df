import assert from 'node:assert/strict'
import { requestedAtAnnotation } from '../controllers/runtime/controller.ts'
import { AppliedRecord } from './applied.ts'
import type { ConsumerObject } from './types.ts'

const hourMs = 3_600_000

function objectWith(
  metadata: Partial<ConsumerObject['metadata']> = {},
  status?: ConsumerObject['status'],
): ConsumerObject {
  return {
    metadata: { name: 'x', namespace: 'apps', uid: 'one', generation: 1, ...metadata },
    spec: {},
    ...(status && { status }),
  }
}

function ready(status: 'True' | 'False' = 'True'): ConsumerObject['status'] {
  const condition = { type: 'Ready', status, reason: 'r', message: 'm', lastTransitionTime: 't' }
  return { conditions: [condition], observedGeneration: 1, lastAppliedDigest: 'A' }
}

describe('what was applied last', () => {
  let record: AppliedRecord
  beforeEach(() => {
    record = new AppliedRecord()
  })

  it('calls for a new object, a new spec, a new digest, a request, and nothing else', () => {
    assert.equal(record.trigger(objectWith(), 'A', undefined), 'spec')
    record.succeeded(objectWith(), 'A', undefined)
    assert.equal(record.trigger(objectWith(), 'A', undefined), undefined)
    assert.equal(record.trigger(objectWith(), 'B', undefined), 'digest')
    assert.equal(record.trigger(objectWith({ generation: 2 }), 'A', undefined), 'spec')
    const poked = objectWith({ annotations: { [requestedAtAnnotation]: 'now' } })
    assert.equal(record.trigger(poked, 'A', undefined), 'requested')
    record.succeeded(poked, 'A', undefined)
    assert.equal(record.trigger(poked, 'A', undefined), undefined)
    assert.equal(
      record.trigger(objectWith(), 'A', undefined),
      undefined,
      'an annotation that is removed asks for nothing',
    )
    assert.equal(record.dueInMs(poked), undefined)
  })

  it('calls when the interval is over', () => {
    record.succeeded(objectWith(), 'A', -1)
    assert.equal(record.trigger(objectWith(), 'A', hourMs), 'interval')
    record.succeeded(objectWith(), 'A', hourMs)
    assert.equal(record.trigger(objectWith(), 'A', hourMs), undefined)
    assert.ok(record.dueInMs(objectWith())! > hourMs - 60_000)
  })

  it('calls again after a failure, whatever the status says', () => {
    record.succeeded(objectWith(), 'A', undefined)
    record.failed(objectWith())
    assert.equal(record.trigger(objectWith({}, ready()), 'A', undefined), 'spec')
  })

  it('takes the word of the status after a restart, and the interval goes on', () => {
    assert.equal(record.trigger(objectWith({}, ready()), 'A', hourMs), undefined)
    assert.ok(record.dueInMs(objectWith())! <= hourMs)
    record.clear()
    assert.equal(record.trigger(objectWith({}, ready()), 'B', hourMs), 'digest')
    record.clear()
    assert.equal(record.trigger(objectWith({}, ready('False')), 'A', hourMs), 'spec')
    record.clear()
    assert.equal(record.trigger(objectWith({ generation: 2 }, ready()), 'A', hourMs), 'spec')
    record.clear()
    const poked = objectWith({ annotations: { [requestedAtAnnotation]: 'now' } }, ready())
    assert.equal(record.trigger(poked, 'A', hourMs), 'requested')
  })

  it('knows an object from its successor of the same name', () => {
    record.succeeded(objectWith(), 'A', undefined)
    assert.equal(record.trigger(objectWith({ uid: 'two' }), 'A', undefined), 'spec')
  })
})
