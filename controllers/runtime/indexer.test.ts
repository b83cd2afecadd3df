import assert from 'node:assert/strict'
import { Indexer } from './indexer.ts'
import type { KubeObject } from './kind.ts'

const object = (name: string, ...owners: string[]): KubeObject => ({
  metadata: {
    namespace: 'ns',
    name,
    ownerReferences: owners.map((owner) => ({ apiVersion: 'v1', kind: 'K', name: owner, uid: owner })),
  },
})

const makeIndexer = () =>
  new Indexer<KubeObject>({ owner: (o) => (o.metadata.ownerReferences ?? []).map((owner) => owner.name) })

describe('indexer', () => {
  it('finds objects by each of their keys', () => {
    const indexer = makeIndexer()
    indexer.set(object('a', 'x', 'y'))
    indexer.set(object('b', 'y'))
    assert.deepEqual(
      indexer
        .by('owner', 'y')
        .map((o) => o.metadata.name)
        .sort(),
      ['a', 'b'],
    )
    assert.deepEqual(
      indexer.by('owner', 'x').map((o) => o.metadata.name),
      ['a'],
    )
    assert.deepEqual(indexer.by('owner', 'z'), [])
  })

  it('forgets the keys that an object no longer has', () => {
    const indexer = makeIndexer()
    indexer.set(object('a', 'x'))
    indexer.set(object('a', 'y'))
    assert.deepEqual(indexer.by('owner', 'x'), [])
    assert.equal(indexer.by('owner', 'y').length, 1)
    indexer.delete('ns/a')
    assert.deepEqual(indexer.by('owner', 'y'), [])
    assert.equal(indexer.size, 0)
  })

  it('throws on an index that was not declared', () => {
    assert.throws(() => makeIndexer().by('nothing', 'x'), /no index 'nothing'/)
  })
})
