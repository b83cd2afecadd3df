import assert from 'node:assert/strict'
import { deleteCondition, getCondition, markFalse, markReconciling, markStalled, markTrue } from './conditions.ts'
import type { ConditionedObject } from './kind.ts'

const make = (): ConditionedObject => ({ metadata: { name: 'x', generation: 3 } })
const types = (obj: ConditionedObject) => obj.status?.conditions?.map(({ type }) => type)

describe('conditions', () => {
  it('carry the generation they are about', () => {
    const obj = make()
    markTrue(obj, 'Ready', 'Succeeded', 'fine')
    assert.equal(getCondition(obj, 'Ready')?.observedGeneration, 3)
  })

  it('keep their transition time while they say the same, and move it when status, reason or message change', () => {
    const obj = make()
    markTrue(obj, 'Ready', 'Succeeded', 'fine')
    const old = '2020-01-01T00:00:00Z'
    const age = () => void (getCondition(obj, 'Ready')!.lastTransitionTime = old)
    age()
    markTrue(obj, 'Ready', 'Succeeded', 'fine')
    assert.equal(getCondition(obj, 'Ready')!.lastTransitionTime, old)
    for (const change of [
      () => markTrue(obj, 'Ready', 'Succeeded', 'finer'),
      () => markTrue(obj, 'Ready', 'Other', 'finer'),
      () => markFalse(obj, 'Ready', 'Other', 'finer'),
    ]) {
      age()
      change()
      assert.notEqual(getCondition(obj, 'Ready')!.lastTransitionTime, old)
    }
  })

  it('never say Reconciling and Stalled together', () => {
    const obj = make()
    markReconciling(obj, 'Progressing', 'at it')
    markStalled(obj, 'URLInvalid', 'no')
    assert.deepEqual(types(obj), ['Stalled'])
    markReconciling(obj, 'Progressing', 'at it')
    assert.deepEqual(types(obj), ['Reconciling'])
  })

  it('stand in the order in which Flux lists them', () => {
    const obj = make()
    for (const type of ['ArtifactInStorage', 'Ready', 'Alpha', 'Reconciling']) markTrue(obj, type, 'R', 'm')
    assert.deepEqual(types(obj), ['Reconciling', 'Ready', 'Alpha', 'ArtifactInStorage'])
    deleteCondition(obj, 'Ready', 'Alpha')
    assert.deepEqual(types(obj), ['Reconciling', 'ArtifactInStorage'])
  })

  it('cut messages at the length that the API allows', () => {
    const obj = make()
    markFalse(obj, 'Ready', 'Failed', 'x'.repeat(40_000))
    assert.equal(getCondition(obj, 'Ready')!.message.length, 32_768)
    assert.match(getCondition(obj, 'Ready')!.message, /x\.\.\.$/)
  })
})
