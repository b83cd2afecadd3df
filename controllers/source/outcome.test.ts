import assert from 'node:assert/strict'
import type { Context } from '../runtime/context.ts'
import { ReconcileError, StalledError, WaitingError } from '../runtime/errors.ts'
import type { EventNote } from '../runtime/events.ts'
import { ApiError } from '../runtime/client.ts'
import { getCondition, markTrue } from '../runtime/conditions.ts'
import { makeLogger } from '../runtime/log.ts'
import { hasFailed, markStored, markVerified } from './conditions.ts'
import { tellFailure, tellStored, tellVerified } from './outcome.ts'
import type { SourceObject } from './source.ts'

const make = (): SourceObject => ({ metadata: { name: 'x', generation: 2 }, spec: { interval: '1m' } })

const silent = { events: { emit: () => undefined }, log: makeLogger('error') } as unknown as Context

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

  it('names the condition of its kind, and takes back those of other failures', () => {
    const own = ['IncludeUnavailable']
    const obj = make()
    const tell = (err: unknown) => tellFailure(obj, err, silent, own)
    const failed = () =>
      ['FetchFailed', 'StorageOperationFailed', ...own].filter((type) => getCondition(obj, type)?.status === 'True')
    tell(new WaitingError('NoArtifact', 'wait', { condition: 'IncludeUnavailable' }))
    assert.deepEqual(failed(), ['IncludeUnavailable'])
    tell(new Error('boom'))
    assert.deepEqual(failed(), ['FetchFailed'])
    tell(new ReconcileError('CopyFailure', 'no', { condition: 'StorageOperationFailed' }))
    assert.deepEqual(failed(), ['StorageOperationFailed'])
    tell(new ReconcileError('InvalidCommitSignature', 'no', { condition: 'SourceVerified' }))
    assert.deepEqual([failed(), getCondition(obj, 'SourceVerified')?.status, hasFailed(obj)], [[], 'False', true])
    tell(new WaitingError('NoArtifact', 'wait', { condition: 'IncludeUnavailable' }))
    markVerified(obj, undefined)
    assert.deepEqual([hasFailed(obj), hasFailed(obj, own)], [false, true])
    markStored(obj, 'main@sha1:1', own)
    assert.deepEqual([failed(), hasFailed(obj, own)], [[], false])
  })

  it('takes back an older failure of another kind', () => {
    const obj = make()
    markTrue(obj, 'StorageOperationFailed', 'ArchiveOperationFailed', 'disk full')
    tellFailure(obj, new Error('boom'), silent)
    assert.equal(getCondition(obj, 'StorageOperationFailed'), undefined)
  })
})

describe('what is told of a signature', () => {
  it('is whose it is, once, and again after it was wrong', () => {
    const obj = make()
    const notes: string[] = []
    const emit = (_: unknown, { severity, reason, message }: EventNote) =>
      void notes.push(`${severity} ${reason} ${message}`)
    const ctx = { ...silent, events: { emit } } as unknown as Context
    for (const message of ['by A', 'by A', 'by B', undefined]) tellVerified(obj, message, ctx)
    tellVerified(obj, 'by B', ctx)
    tellFailure(obj, new ReconcileError('InvalidCommitSignature', 'no', { condition: 'SourceVerified' }), silent)
    tellVerified(obj, 'by B', ctx)
    assert.deepEqual(
      notes,
      ['A', 'B', 'B', 'B'].map((who) => `trace Succeeded by ${who}`),
    )
    assert.equal(getCondition(obj, 'SourceVerified')?.message, 'by B')
  })
})

describe('what is told of an artifact', () => {
  function events(before: string | undefined, droppedSymlinks: number, recovered = false): string[] {
    const obj = make()
    const artifact = { path: 'p', url: 'u', revision: 'main@sha1:1', digest: 'sha256:1', lastUpdateTime: 't' }
    const old = make()
    if (before) old.status = { artifact: { ...artifact, digest: before } }
    obj.status = { artifact }
    const notes: string[] = []
    const emit = (_: unknown, { severity, reason, message }: EventNote) =>
      void notes.push(`${severity} ${reason} ${message}`)
    const ctx = { events: { emit }, log: makeLogger('error') } as unknown as Context
    tellStored(old, obj, { summary: "commit 'x'", droppedSymlinks, recovered }, ctx)
    return notes
  }

  it('is what was stored, and how many symbolic links are missing from it', () => {
    const stored = "info NewArtifact stored artifact for commit 'x'"
    const dropped = (links: string) =>
      `error SymlinksDropped left ${links} out of the artifact for revision 'main@sha1:1'`
    assert.deepEqual(events(undefined, 0), [stored])
    assert.deepEqual(events('sha256:0', 1), [stored, dropped('1 symbolic link')])
    assert.deepEqual(events('sha256:0', 2), [stored, dropped('2 symbolic links')])
  })

  it('is nothing where the bytes are as before, unless something was wrong', () => {
    assert.deepEqual(events('sha256:1', 2), [])
    assert.deepEqual(events('sha256:1', 2, true), ["info Succeeded stored artifact for commit 'x'"])
  })
})
