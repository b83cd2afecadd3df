import { Client } from '../controllers/runtime/client.ts'
import type { Kind, KubeObject } from '../controllers/runtime/kind.ts'
import { loadCredentials } from '../controllers/runtime/kube-config.ts'
import { type ControlPlane, startControlPlane } from './control-plane/index.ts'

let running: Promise<ControlPlane> | undefined

/** The control plane that all test files of one mocha process share, with our CRDs and the sample consumer's. Started at the first call. */
export function sharedControlPlane(): Promise<ControlPlane> {
  running ??= startControlPlane({ crds: ['crds', 'consumer-sdk/sample/crd.yaml'] })
  return running
}

/** What mocha runs once around all files (`--require`). */
export const mochaHooks = {
  async afterAll(): Promise<void> {
    await (await running)?.stop()
  },
}

/** A client with the rights of a cluster administrator. `server` replaces the address, e.g. by that of a proxy. */
export function clientFor(kubeconfig: string, fieldManager = 'test', server?: string): Client {
  const credentials = loadCredentials(kubeconfig)
  if (!server) return new Client(credentials, fieldManager)
  return new Client(async (refresh) => ({ ...(await credentials(refresh)), server }), fieldManager)
}

const NamespaceKind: Kind<KubeObject> = {
  group: '',
  version: 'v1',
  kind: 'Namespace',
  plural: 'namespaces',
  namespaced: false,
}

/** A new namespace, so that tests on one API server do not meet. */
export async function makeNamespace(client: Client): Promise<string> {
  const name = `test-${Math.random().toString(36).slice(2, 10)}`
  await client.create(NamespaceKind, { metadata: { name } })
  return name
}
