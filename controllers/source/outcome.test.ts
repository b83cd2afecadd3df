import assert from 'node:assert/strict'
import type { Context } from '../runtime/context.ts'
import { StalledError, WaitingError } from '../runtime/errors.ts'
import type { EventNote } from '../runtime/events.ts'
import { ApiError } from '../runtime/client.ts'
import { getCondition, markTrue } from '../runtime/conditions.ts'
import { makeLogger } from '../runtime/log.ts'
import { tellFailure } from './outcome.ts'
import type { SourceObject } from './source.ts'

const make = (): SourceObject => ({ metadata: { name: 'x', generation: 2 }, spec: { interval: '1m' } })

/** What is told of a failure: the object after it, and the event. */
function told(err: unknown): { obj: SourceObject; notes: EventNote[] } {
  const obj = make()
  const notes: EventNote[] = []
  const events = { emit: (_: unknown, note: EventNote) => void notes.push(note) }
  tellFailure(obj, err, { events, log: makeLogger('error') } as unknown as Context)
  return { obj, notes }
}

describe('what is told of a failure', () => {
  it('is nothing when somebody else has merely been faster', () => {
    const { obj, notes } = told(new ApiError(409, 'Conflict', 'changed'))
    assert.deepEqual([obj.status, notes], [undefined, []])
  })

  it('blames upstream for what upstream did, and the API server for nothing of the kind', () => {
    assert.equal(getCondition(told(new Error('boom')).obj, 'FetchFailed')?.status, 'True')
    const { obj, notes } = told(new ApiError(0, 'ApiServerUnavailable', 'connection refused'))
    assert.equal(getCondition(obj, 'FetchFailed'), undefined)
    assert.equal(getCondition(obj, 'Ready')?.reason, 'ApiServerUnavailable')
    assert.deepEqual(
      notes.map(({ severity }) => severity),
      ['trace'],
    )
  })

  it('is quiet about what is only waited for', () => {
    const { obj, notes } = told(new WaitingError('NotFound', 'not there yet'))
    assert.equal(getCondition(obj, 'Reconciling')?.status, 'True')
    assert.deepEqual(
      notes.map(({ severity }) => severity),
      ['trace'],
    )
  })

  it('counts a stalled spec as dealt with, a failed one not', () => {
    assert.equal(told(new StalledError('URLInvalid', 'no')).obj.status?.observedGeneration, 2)
    assert.equal(told(new Error('boom')).obj.status?.observedGeneration, undefined)
  })

  it('takes back an older failure of another kind', () => {
    const obj = make()
    markTrue(obj, 'StorageOperationFailed', 'ArchiveOperationFailed', 'disk full')
    tellFailure(obj, new Error('boom'), {
      events: { emit: () => undefined },
      log: makeLogger('error'),
    } as unknown as Context)
    assert.equal(getCondition(obj, 'StorageOperationFailed'), undefined)
  })
})
