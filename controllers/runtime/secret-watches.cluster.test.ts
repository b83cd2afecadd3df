import assert from 'node:assert/strict'
import { clientFor, makeNamespace, sharedControlPlane } from '../../e2e/shared-control-plane.ts'
import type { ControlPlane } from '../../e2e/control-plane/index.ts'
import { type FaultProxy, startFaultProxy } from '../../e2e/tools/fault-proxy.ts'
import { ApiError, Client } from './client.ts'
import { eventually, eventuallyHolds } from './eventually.ts'
import type { Kind, KubeObject } from './kind.ts'
import { makeLogger } from './log.ts'
import { type Secret, SecretKind } from './secret.ts'
import { type Reader, SecretWatches } from './secret-watches.ts'

const RoleKind: Kind<KubeObject> = {
  group: 'rbac.authorization.k8s.io',
  version: 'v1',
  kind: 'Role',
  plural: 'roles',
}
const BindingKind: Kind<KubeObject> = { ...RoleKind, kind: 'RoleBinding', plural: 'rolebindings' }

/** Counts how often it was woken. */
class Counter implements Reader {
  woken = 0
  wake(): void {
    this.woken++
  }
}

describe('watched Secrets on a real API server', function () {
  this.timeout(60_000)
  const { signal } = new AbortController()
  let controlPlane: ControlPlane
  let direct: Client
  let client: Client
  let namespace: string
  let proxy: FaultProxy
  let watches: SecretWatches
  let opened: number

  beforeEach(async () => {
    controlPlane = await sharedControlPlane()
    direct = clientFor(controlPlane.kubeconfig)
    namespace = await makeNamespace(direct)
    proxy = await startFaultProxy(Number(new URL(controlPlane.url).port))
    client = clientFor(controlPlane.kubeconfig, 'secrets-test', `https://127.0.0.1:${proxy.port}`)
    opened = countWatches(client)
    watches = new SecretWatches({ client, log: makeLogger('error') })
  })

  afterEach(async () => {
    await watches.close()
    await proxy.stop()
  })

  /** Lets `opened` say how many watches have been asked for; `before` runs ahead of each. */
  function countWatches(of: Client, before: (count: number) => Promise<string | undefined> = async () => undefined): 0 {
    of.watch = async (kind, selection, version, ...rest) => {
      const instead = await before(++opened)
      return Client.prototype.watch.call(of, kind, selection, instead ?? version, ...rest)
    }
    return 0
  }

  const put = (name: string, password: string) =>
    direct.apply<Secret>(SecretKind, {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name, namespace },
      data: { password: Buffer.from(password).toString('base64') },
    })
  const remove = (name: string) => direct.delete(SecretKind, { namespace, name })
  const read = async (name: string, reader: Reader) => {
    const data = await watches.read({ namespace, name }, reader, signal)
    return data.password?.toString()
  }

  it('gives what is there, and wakes each reader of it when that changes, over one watch', async () => {
    await put('login', 'one')
    const readers = [new Counter(), new Counter(), new Counter()]
    for (const reader of readers) assert.equal(await read('login', reader), 'one')
    await put('login', 'two')
    await eventually(() => readers.every(({ woken }) => woken === 1))
    assert.equal(await read('login', readers[0]!), 'two')
    assert.deepEqual([watches.size, opened], [1, 1])
  })

  it('is silent about changes of anything but the data, and of what nobody refers to any more', async () => {
    await put('login', 'one')
    await put('other', 'one')
    const [reader, former] = [new Counter(), new Counter()]
    await read('login', reader)
    await read('login', former)
    await read('other', former)
    watches.release({ namespace, name: 'other' }, former)
    watches.release({ namespace, name: 'login' }, former)
    assert.equal(watches.size, 1)
    await direct.patch(SecretKind, { namespace, name: 'login' }, { metadata: { labels: { a: 'b' } } })
    await put('other', 'two')
    await put('login', 'two')
    await eventually(() => reader.woken > 0)
    assert.deepEqual([reader.woken, former.woken], [1, 0])
  })

  it('wakes readers when a Secret appears, goes, and comes again', async () => {
    const reader = new Counter()
    const missing = {
      reason: 'AuthenticationFailed',
      message: `failed to get secret '${namespace}/late': secrets "late" not found`,
    }
    await assert.rejects(read('late', reader), missing)
    await put('late', 'one')
    await eventually(() => reader.woken === 1)
    assert.equal(await read('late', reader), 'one')
    await remove('late')
    await eventually(() => reader.woken === 2)
    await assert.rejects(read('late', reader), missing)
    await put('late', 'one')
    await eventually(() => reader.woken === 3)
    assert.deepEqual([watches.size, opened], [1, 1])
  })

  for (const [what, before, between] of [
    ['changed', 'one', (name: string) => put(name, 'two')],
    ['deleted', 'one', remove],
    ['created', undefined, (name: string) => put(name, 'one')],
  ] as const) {
    it(`misses nothing that is ${what} between the read and the start of the watch`, async () => {
      if (before) await put('login', before)
      countWatches(client, async (count) => void (count === 1 && (await between('login'))))
      const reader = new Counter()
      await read('login', reader).catch(() => undefined)
      await eventually(() => reader.woken === 1)
    })
  }

  it('looks again when the server no longer knows where the watch was to begin', async () => {
    await put('login', 'one')
    countWatches(client, async (count) => {
      if (count > 1) return undefined
      await put('login', 'two')
      throw new ApiError(410, 'Expired', 'too old resource version')
    })
    const reader = new Counter()
    await read('login', reader)
    await eventually(() => reader.woken === 1)
    await put('login', 'three')
    await eventually(() => reader.woken > 1)
    assert.equal(opened, 2)
  })

  it('hears of what happened while its connection was cut', async () => {
    await put('login', 'one')
    const reader = new Counter()
    await read('login', reader)
    await eventually(() => opened === 1)
    proxy.reset()
    await put('login', 'two')
    await eventually(() => reader.woken === 1)
  })

  it('wakes a reader that has read something older than what is known', async () => {
    await put('login', 'one')
    const [first, late] = [new Counter(), new Counter()]
    await read('login', first)
    const get = Client.prototype.get.bind(client) as Client['get']
    // An answer that arrives after the event of the change behind it.
    client.get = async (...args) => {
      client.get = get
      const old = await get(...args)
      await put('login', 'two')
      await eventually(() => first.woken === 1)
      return old as never
    }
    assert.equal(await read('login', late), 'one')
    await eventually(() => late.woken === 1)
  })

  it('reads without watching where only that is allowed, and does not ask over and over', async () => {
    await put('login', 'one')
    await put('other', 'one')
    const rules = [{ apiGroups: [''], resources: ['secrets'], verbs: ['get'] }]
    await direct.create(RoleKind, { metadata: { name: 'read', namespace }, rules } as KubeObject)
    const user = `reader-of-${namespace}`
    await direct.create(BindingKind, {
      metadata: { name: 'read', namespace },
      roleRef: { apiGroup: RoleKind.group, kind: 'Role', name: 'read' },
      subjects: [{ apiGroup: RoleKind.group, kind: 'User', name: user }],
    } as KubeObject)
    const limited = clientFor(await controlPlane.userKubeconfig(user))
    const log = makeLogger('error')
    const told: string[] = []
    log.info = (_: unknown, message?: string) => void told.push(message ?? '')
    countWatches(limited)
    const own = new SecretWatches({ client: limited, log })
    const reader = new Counter()
    for (const name of ['login', 'other', 'login']) {
      await eventuallyHolds(async () => void (await own.read({ namespace, name }, reader, signal)))
    }
    await eventually(() => opened === 2 && told.length > 0)
    await put('login', 'two')
    assert.equal((await own.read({ namespace, name: 'login' }, reader, signal)).password?.toString(), 'two')
    await own.close()
    assert.deepEqual(
      [reader.woken, opened, told],
      [0, 2, ['Secrets are not watched: changes are noticed at the interval']],
    )
  })

  it('watches no more than it may, and reads the others all the same', async () => {
    for (const name of ['a', 'b', 'c']) await put(name, 'one')
    const few = new SecretWatches({ client, log: makeLogger('error'), maxWatches: 2 })
    const reader = new Counter()
    for (const name of ['a', 'b', 'c']) await few.read({ namespace, name }, reader, signal)
    assert.equal(few.size, 2)
    few.release({ namespace, name: 'a' }, reader)
    await few.read({ namespace, name: 'c' }, reader, signal)
    await put('c', 'two')
    await eventually(() => reader.woken === 1)
    await few.close()
    assert.equal(few.size, 0)
  })

  it('asks for nothing under a name that no Secret can have', async () => {
    for (const name of ['', '..', '../configmaps/x', 'a,metadata.name=b', 'A', 'x'.repeat(254)]) {
      await assert.rejects(read(name, new Counter()), { name: 'StalledError', reason: 'AuthenticationFailed' })
    }
    assert.equal(watches.size, 0)
  })
})
