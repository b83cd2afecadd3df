import assert from 'node:assert/strict'
import { sharedControlPlane } from '../../e2e/shared-control-plane.ts'
import { ArtifactKind } from '../artifact/types.ts'
import type { Client } from '../runtime/client.ts'
import { getCondition } from '../runtime/conditions.ts'
import { ReconcileError } from '../runtime/errors.ts'
import { eventually } from '../runtime/eventually.ts'
import type { Kind, KubeObject } from '../runtime/kind.ts'
import { type Secret, SecretKind } from '../runtime/secret.ts'
import type { SourceObject } from './source.ts'
import { type SourceRun, type SourceRunOptions, startSourceRun } from './test-run.ts'
import type { Upstream } from './testing.ts'

/** Nobody tries again within a test: what heals was woken. */
const patient = ['--min-retry-delay=10m', '--max-retry-delay=10m', '--requeue-dependency=10m']

const RoleKind: Kind = { group: 'rbac.authorization.k8s.io', version: 'v1', kind: 'Role', plural: 'roles' }
const BindingKind: Kind = { ...RoleKind, kind: 'RoleBinding', plural: 'rolebindings' }

/** What a kind owes those who must prove who they are, and those who demand proof of what they get. */
export function describeTrust<T extends SourceObject, U>(
  name: string,
  makeUpstream: () => Promise<Upstream<T, U>>,
  hasCredentials: boolean,
): void {
  describe(`${name} as a source that trusts and is trusted`, function () {
    this.timeout(120_000)
    let upstream: Upstream<T, U>
    let run: SourceRun<T> | undefined

    before(async () => {
      upstream = await makeUpstream()
      await upstream.publish({ 'a.yaml': 'a: 1\n' })
    })
    afterEach(async () => {
      await run?.stop()
      run = undefined
      upstream.credentials?.lift()
    })
    after(() => upstream?.stop())

    const start = async (options: SourceRunOptions, source = upstream.source): Promise<SourceRun<T>> =>
      (run = await startSourceRun(source, upstream.spec, options))

    /** Brings about an object whose credentials are refused, and gives the right ones. */
    async function locked(options: SourceRunOptions) {
      const { credentials } = upstream
      assert.ok(credentials)
      const { client, namespace, ...others } = await start(options)
      const put = (values: Record<string, string>) => {
        const data = Object.fromEntries(
          Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString('base64')]),
        )
        return client.apply<Secret>(SecretKind, {
          apiVersion: 'v1',
          kind: 'Secret',
          metadata: { name: 'login', namespace },
          data,
        })
      }
      await others.create('private', credentials.specOf('login'))
      const state = async () => {
        const object = await others.read('private')
        return `${getCondition(object, 'Ready')?.status} ${getCondition(object, 'Ready')?.message}`
      }
      return { put, state, credentials, client, namespace, ...others }
    }

    const itWithCredentials = hasCredentials ? it : () => undefined

    itWithCredentials('finds credentials that come later, takes others at once, and hears when they go', async () => {
      const { put, state, credentials, client, namespace, ready, poke } = await locked({ flags: patient })
      const wrong = await credentials.rotate()
      await eventually(async () => /^False .*secrets "login" not found/.test(await state()))
      const right = await credentials.rotate()
      await put(wrong)
      await eventually(async () => !/not found|^True/.test(await state()))
      await put(right)
      await ready('private')
      const rotated = await credentials.rotate()
      assert.equal(getCondition(await poke('private'), 'Ready')?.status, 'False')
      await put(rotated)
      const { status } = await ready('private')
      await client.delete(SecretKind, { namespace, name: 'login' })
      await eventually(async () => /secrets "login" not found/.test(await state()))
      await put(rotated)
      assert.deepEqual((await ready('private')).status.artifact, status.artifact)
    })

    itWithCredentials('takes other credentials at its next try where it may not watch Secrets', async () => {
      const { put, state, credentials, ready } = await locked({ flags: ['--take-over'], login: loginWithoutWatch })
      await put(await credentials.rotate())
      await ready('private')
      const rotated = await credentials.rotate()
      await run!.client.patch(
        upstream.source.kind,
        { namespace: run!.namespace, name: 'private' },
        { spec: { interval: '1s' } },
      )
      await eventually(async () => (await state()).startsWith('False'))
      await put(rotated)
      await ready('private')
    })

    it('checks signatures on every pass, and neither replaces nor withdraws what is stored when one is wrong', async () => {
      let verdict: string | undefined = 'signed by A'
      const verify = async () => {
        if (verdict === 'wrong')
          throw new ReconcileError('InvalidSignature', 'not signed by A', { condition: 'SourceVerified' })
        return verdict
      }
      const { create, ready, poke, fetches, artifact } = await start({}, { ...upstream.source, verify })
      await create('signed')
      const before = await ready('signed')
      const verified = (object: T) => {
        const { status, reason, message } = getCondition(object, 'SourceVerified') ?? {}
        return status && `${status} ${reason} ${message}`
      }
      assert.equal(verified(before), 'True Succeeded signed by A')
      const fetched = fetches()
      for (const [next, condition, isReady] of [
        ['wrong', 'False InvalidSignature not signed by A', 'False'],
        ['signed by B', 'True Succeeded signed by B', 'True'],
        [undefined, undefined, 'True'],
        ['wrong', 'False InvalidSignature not signed by A', 'False'],
      ] as const) {
        verdict = next
        const object = await poke('signed')
        assert.deepEqual([verified(object), getCondition(object, 'Ready')?.status], [condition, isReady])
        assert.deepEqual(object.status?.artifact, before.status.artifact)
      }
      assert.equal(fetches(), fetched)
      await upstream.publish({ 'a.yaml': 'a: 2\n' })
      const refused = await poke('signed')
      assert.deepEqual(refused.status?.artifact, before.status.artifact)
      assert.equal((await artifact('signed'))?.spec?.digest, before.status.artifact.digest)
      verdict = 'signed by A'
      await eventually(async () => (await ready('signed')).status.artifact.revision !== before.status.artifact.revision)
    })
  })
}

/** A user who may do everything in the namespace but watch Secrets. */
async function loginWithoutWatch(client: Client, namespace: string): Promise<string> {
  const user = `controller-of-${namespace}`
  const verbs = ['get', 'list', 'create', 'update', 'patch', 'delete']
  const rules = [
    { apiGroups: ['*'], resources: ['*'], verbs },
    { apiGroups: ['source.toolkit.fluxcd.io', ArtifactKind.group], resources: ['*'], verbs: ['watch'] },
  ]
  const metadata = { name: 'controller', namespace }
  await client.create(RoleKind, { metadata, rules } as KubeObject)
  const subjects = [{ apiGroup: RoleKind.group, kind: 'User', name: user }]
  const roleRef = { apiGroup: RoleKind.group, kind: 'Role', name: 'controller' }
  await client.create(BindingKind, { metadata, roleRef, subjects } as KubeObject)
  return (await sharedControlPlane()).userKubeconfig(user)
}
