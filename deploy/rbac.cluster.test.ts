import assert from 'node:assert/strict'
import { applyArtifact } from '../controllers/artifact/artifact.ts'
import { type GitRepository, GitRepositoryKind } from '../controllers/git/types.ts'
import { Client, isStatus } from '../controllers/runtime/client.ts'
import type { Kind, KubeObject } from '../controllers/runtime/kind.ts'
import { loadCredentials } from '../controllers/runtime/kube-config.ts'
import { readServiceAccount, serviceAccountToken } from '../controllers/source/identity/service-account.ts'
import { type ControlPlane, startControlPlane } from '../e2e/control-plane/index.ts'
import { eventuallyHolds } from '../controllers/runtime/eventually.ts'
import { type Kubectl, makeKubectl } from './kubectl.ts'

interface Review extends KubeObject {
  spec: object
  status?: { allowed: boolean }
}

const ReviewKind: Kind<Review> = {
  group: 'authorization.k8s.io',
  version: 'v1',
  kind: 'SubjectAccessReview',
  plural: 'subjectaccessreviews',
  namespaced: false,
}

const namespace = 'openflux-system'
const controller = {
  user: `system:serviceaccount:${namespace}:git-controller`,
  groups: ['system:authenticated', 'system:serviceaccounts', `system:serviceaccounts:${namespace}`],
}
const person = (user: string) => ({ user, groups: ['system:authenticated'] })
const repositories = 'gitrepositories.source.toolkit.fluxcd.io'
const artifacts = 'artifacts.openfluxcd.ocm.software'

let cluster: ControlPlane
let kubectl: Kubectl
let admin: Client

const clientOf = (kubeconfig: string) => new Client(loadCredentials(kubeconfig), 'rbac-test')

/** The verbs, of those given, that RBAC grants on `resource[.group][/subresource][=name] [in namespace]`; without one, in all of them. */
async function granted(who: { user: string; groups: string[] }, verbs: string, target: string): Promise<string> {
  const [, resource, group = '', subresource = '', name = '', where = ''] =
    /^([^\s./=]+)(?:\.([^\s/=]+))?(?:\/([^\s=]+))?(?:=(\S+))?(?: in (\S+))?$/.exec(target) ?? assert.fail(target)
  const answers = verbs.split(' ').map(async (verb) => {
    const resourceAttributes = { verb, resource, group, subresource, name, namespace: where }
    const review = await admin.create(ReviewKind, { metadata: { name: '' }, spec: { ...who, resourceAttributes } })
    return review.status?.allowed ? [verb] : []
  })
  return (await Promise.all(answers)).flat().join(' ')
}

const allVerbs = 'get list watch create update patch delete deletecollection'

describe('roles', function () {
  this.timeout(60_000)

  before(async function () {
    this.timeout(30 * 60_000)
    cluster = await startControlPlane()
    kubectl = await makeKubectl(cluster)
    admin = clientOf(cluster.kubeconfig)
    await kubectl.run(['apply', '-k', import.meta.dirname])
    await kubectl.run(['wait', '--for=condition=Established', 'crd', '--all', '--timeout=30s'])
    await kubectl.run(['create', 'namespace', 'team'])
    for (const role of ['view', 'edit', 'admin'])
      await kubectl.run(['create', 'rolebinding', role, `--clusterrole=${role}`, `--user=${role}er`, '-n', 'team'])
  })

  after(async () => {
    await kubectl?.[Symbol.asyncDispose]()
    await cluster?.stop()
  })

  describe('of the git controller', () => {
    const rights: [target: string, verbs: string][] = [
      [repositories, 'get list watch patch'],
      [`${repositories}/status`, 'patch'],
      [`${repositories}/finalizers`, 'update'],
      [artifacts, 'get list watch create patch delete'],
      [`${artifacts}/status`, ''],
      ['events', 'create patch'],
      ['secrets', 'get watch'],
      [`secrets in ${namespace}`, 'get watch'],
      ['configmaps', ''],
      ['serviceaccounts', ''],
      ['serviceaccounts/token', ''],
      ['pods', ''],
      ['pods/exec', ''],
      ['namespaces', ''],
      ['nodes', ''],
      ['deployments.apps in team', ''],
      [`deployments.apps in ${namespace}`, ''],
      ['clusterroles.rbac.authorization.k8s.io', ''],
      ['customresourcedefinitions.apiextensions.k8s.io', ''],
      ['ocirepositories.source.toolkit.fluxcd.io', ''],
      [`leases.coordination.k8s.io in ${namespace}`, 'get create update'],
      ['leases.coordination.k8s.io in flux-system', ''],
      ['leases.coordination.k8s.io=source-controller-leader-election in flux-system', 'get'],
      ['leases.coordination.k8s.io=kube-controller-manager in kube-system', ''],
    ]
    for (const [target, verbs] of rights) {
      it(`allows ${verbs || 'nothing'} on ${target}`, async () => {
        assert.equal(await granted(controller, allVerbs, target), verbs)
      })
    }
  })

  it('let the controller use the identities that the sample names, and no others', async () => {
    await kubectl.run(['apply', '-f', `${import.meta.dirname}/samples/service-account-identity.yaml`])
    for (const [target, verbs] of [
      ['serviceaccounts=shop-reader in default', 'get'],
      ['serviceaccounts/token=shop-reader in default', 'create'],
      ['serviceaccounts/token=default in default', ''],
      ['serviceaccounts/token in default', ''],
      ['serviceaccounts/token=shop-reader in team', ''],
    ] as const)
      await eventuallyHolds(async () => assert.equal(await granted(controller, allVerbs, target), verbs, target))
    const own = clientOf(await cluster.userKubeconfig(controller.user, controller.groups))
    const ctx = { client: own, signal: AbortSignal.timeout(10_000) }
    const account = await readServiceAccount(ctx, 'default', 'shop-reader')
    assert.ok(await serviceAccountToken(ctx, account, 'api://AzureADTokenExchange'))
    await assert.rejects(serviceAccountToken(ctx, { ...account, name: 'default' }, 'x'), /forbidden/)
  })

  it('let only the controller make an Artifact block the deletion of its owner', async () => {
    const repository = await createRepository('app')
    const verbs = ['--verb=create,patch', `--resource=${artifacts}`]
    await kubectl.run(['create', 'role', 'writer', ...verbs, '-n', 'team'])
    await kubectl.run(['create', 'rolebinding', 'writer', '--role=writer', '--user=writer', '-n', 'team'])
    const writer = clientOf(await cluster.userKubeconfig('writer'))
    await eventuallyHolds(async () =>
      assert.equal(await granted(person('writer'), 'create', `${artifacts} in team`), 'create'),
    )
    await assert.rejects(
      apply(writer, repository),
      (err) => isStatus(err, 403) && /blockOwnerDeletion/.test(String(err)),
    )
    const own = clientOf(await cluster.userKubeconfig(controller.user, controller.groups))
    assert.equal((await apply(own, repository)).metadata.ownerReferences?.[0]?.blockOwnerDeletion, true)
  })

  for (const user of ['editer', 'adminer']) {
    it(`let no ${user} forge an Artifact`, async () => {
      // Rights arrive a moment after the roles; a refusal before that would prove nothing.
      await eventuallyHolds(async () =>
        assert.equal(await granted(person(user), 'create', `${repositories} in team`), 'create'),
      )
      const client = clientOf(await cluster.userKubeconfig(user))
      const repository = await createRepository(`of-${user}`, client)
      await assert.rejects(
        apply(client, repository),
        (err) => isStatus(err, 403) && /cannot patch resource "artifacts"/.test(String(err)),
      )
    })
  }

  const people: [user: string, target: string, verbs: string][] = [
    ['viewer', `${repositories} in team`, 'get list watch'],
    ['viewer', `${artifacts} in team`, 'get list watch'],
    ['editer', `${repositories} in team`, allVerbs],
    ['editer', `${artifacts} in team`, 'get list watch'],
    ['editer', `${repositories}/status in team`, ''],
    ['editer', `${repositories} in default`, ''],
    ['adminer', `${repositories} in team`, allVerbs],
    ['adminer', `${artifacts} in team`, 'get list watch'],
    ['stranger', `${artifacts} in team`, ''],
  ]
  for (const [user, target, verbs] of people) {
    it(`allow ${verbs || 'nothing'} on ${target} to a ${user}`, async () => {
      // The controller manager adds rules to its own roles a moment after they appear.
      await eventuallyHolds(async () => assert.equal(await granted(person(user), allVerbs, target), verbs))
    })
  }

  it('let the sample’s consumer read the Artifacts of its namespace and nothing else', async () => {
    await kubectl.run(['apply', '-f', `${import.meta.dirname}/samples/consumer-role.yaml`])
    const consumer = person('system:serviceaccount:default:my-consumer')
    assert.equal(await granted(consumer, allVerbs, `${artifacts} in default`), 'get list watch')
    for (const target of [`${artifacts} in team`, `${repositories} in default`, 'secrets in default'])
      assert.equal(await granted(consumer, allVerbs, target), '', target)
  })
})

function createRepository(name: string, client = admin): Promise<GitRepository> {
  const spec = { url: 'https://git.example.com/x', interval: '5m' }
  const { group, version, kind } = GitRepositoryKind
  return client.create(GitRepositoryKind, {
    apiVersion: `${group}/${version}`,
    kind,
    metadata: { name, namespace: 'team' },
    spec,
  })
}

function apply(client: Client, repository: GitRepository) {
  const served = {
    path: 'a/b/c/d',
    url: 'http://files/x',
    revision: 'r',
    digest: 'sha256:0',
    size: 1,
    lastUpdateTime: '2026-01-02T03:04:05Z',
  }
  return applyArtifact(client, GitRepositoryKind, repository, served, undefined, AbortSignal.timeout(10_000))
}
