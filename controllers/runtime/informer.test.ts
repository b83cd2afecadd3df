import assert from 'node:assert/strict'
import { ApiError, Client, type Page } from './client.ts'
import { eventually } from './eventually.ts'
import { Informer } from './informer.ts'
import type { Kind, KubeObject } from './kind.ts'
import { makeLogger } from './log.ts'

const kind: Kind<KubeObject> = { group: '', version: 'v1', kind: 'ConfigMap', plural: 'configmaps' }
const object = (name: string, resourceVersion: string): KubeObject => ({
  metadata: { namespace: 'ns', name, uid: name, resourceVersion },
})

/** A client whose lists are scripted and whose watches end as they are told, for what no server does on demand. */
class ScriptedClient extends Client {
  lists: KubeObject[][]
  constructor(...lists: KubeObject[][]) {
    super(() => Promise.reject(new Error('no server')), 'test')
    this.lists = lists
  }
  override page<T extends KubeObject>(): Promise<Page<T>> {
    const items = (this.lists.length > 1 ? this.lists.shift()! : this.lists[0]!) as T[]
    return Promise.resolve({ items: structuredClone(items), resourceVersion: '1', next: undefined })
  }
  override watch(): Promise<never> {
    return Promise.reject(new ApiError(410, 'Expired', 'too old'))
  }
}

describe('informer', () => {
  it('believes a list whose versions are lower: etcd was restored from a backup', async () => {
    const client = new ScriptedClient([object('a', '50'), object('b', '51')], [object('a', '30')])
    const informer = new Informer(client, makeLogger('error'), kind)
    const stop = new AbortController()
    const running = informer.run(stop.signal)
    await eventually(() => informer.cache.get('ns/a')?.metadata.resourceVersion === '30')
    assert.equal(informer.cache.get('ns/b'), undefined)
    stop.abort()
    await running
  })

  it('takes in its own writes, never backwards, and never what is not in the cache', async () => {
    const informer = new Informer(new ScriptedClient([object('a', '50')]), makeLogger('error'), kind)
    const stop = new AbortController()
    const running = informer.run(stop.signal)
    await informer.whenSynced()
    informer.put(object('a', '60'))
    assert.equal(informer.cache.get('ns/a')?.metadata.resourceVersion, '60')
    informer.put(object('a', '55'))
    assert.equal(informer.cache.get('ns/a')?.metadata.resourceVersion, '60')
    informer.put(object('ghost', '1'))
    assert.equal(informer.cache.get('ns/ghost'), undefined)
    stop.abort()
    await running
  })
})
