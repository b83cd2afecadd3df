import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { loadAll } from 'js-yaml'
import { GenericKind, K8s, RegisterKind } from 'kubernetes-fluent-client'
import { eventually } from '../../controllers/runtime/eventually.ts'
import { startControlPlane } from '../control-plane/index.ts'

/** A cluster to show things on. */
export interface DevCluster {
  kubeconfig: string
  /** Whether it was started here, and goes away with `stop`. */
  own: boolean
  stop(): Promise<void>
}

const project = join(import.meta.dirname, '../..')
/** The CRDs of this project and of the sample consumer. */
const crds = [join(project, 'crds'), join(project, 'consumer-sdk/sample/crd.yaml')]

/** The cluster of a kubeconfig, with our CRDs installed, or else a control plane on loopback. */
export async function openCluster(kubeconfig: string | undefined): Promise<DevCluster> {
  if (kubeconfig) {
    useKubeconfig(kubeconfig)
    await installCrds()
    return { kubeconfig, own: false, stop: async () => undefined }
  }
  const controlPlane = await startControlPlane({ crds })
  useKubeconfig(controlPlane.kubeconfig)
  return { kubeconfig: controlPlane.kubeconfig, own: true, stop: () => controlPlane.stop() }
}

/** kubernetes-fluent-client knows no other way to be told. */
function useKubeconfig(path: string): void {
  process.env.KUBECONFIG = path
}

interface CrdManifest {
  metadata: { name: string }
  spec: { names: { plural: string } }
}

class Crd extends GenericKind {
  declare status?: { conditions?: { type: string; status: string }[] }
}
RegisterKind(Crd, {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  kind: 'CustomResourceDefinition',
  plural: 'customresourcedefinitions',
})

async function installCrds(): Promise<void> {
  const files = (await readdir(crds[0]!)).filter((name) => name.endsWith('.yaml')).map((name) => join(crds[0]!, name))
  for (const file of [...files, crds[1]!]) {
    for (const manifest of loadAll(await readFile(file, 'utf8'))) {
      const { metadata } = manifest as CrdManifest
      await K8s(Crd).Apply(manifest as object, { force: true })
      await eventually(async () => {
        const { status } = await K8s(Crd).Get(metadata.name)
        return status?.conditions?.some(({ type, status: state }) => type === 'Established' && state === 'True')
      })
    }
  }
}
