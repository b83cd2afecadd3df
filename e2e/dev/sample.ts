import { GenericKind, K8s, kind, RegisterKind } from 'kubernetes-fluent-client'
import { ExtractionKind } from '../../consumer-sdk/sample/extraction.ts'
import { type GitRepository, GitRepositoryKind } from '../../controllers/git/types.ts'
import { eventually } from '../../controllers/runtime/eventually.ts'

class GitRepositoryModel extends GenericKind {}
RegisterKind(GitRepositoryModel, GitRepositoryKind)
class ExtractionModel extends GenericKind {}
RegisterKind(ExtractionModel, ExtractionKind)

/** The name of both objects of the sample. */
export const sampleName = 'sample'

/** Creates a GitRepository, and a consumer that refers to it. */
export async function applySample(namespace: string, spec: Pick<GitRepository['spec'], 'url' | 'ref'>): Promise<void> {
  const metadata = { name: sampleName, namespace }
  const sourceRef = { kind: 'GitRepository', name: sampleName }
  await K8s(kind.Namespace).Apply({ metadata: { name: namespace } }, { force: true })
  await K8s(GitRepositoryModel).Apply({ metadata, spec: { ...spec, interval: '5s' } }, { force: true })
  await K8s(ExtractionModel).Apply({ metadata, spec: { sourceRef } }, { force: true })
}

/** Deletes both, while the controllers that have to let go of them still run. */
export async function removeSample(namespace: string): Promise<void> {
  await K8s(ExtractionModel).InNamespace(namespace).Delete(sampleName)
  await K8s(GitRepositoryModel).InNamespace(namespace).Delete(sampleName)
  const gone = () =>
    K8s(GitRepositoryModel)
      .InNamespace(namespace)
      .Get(sampleName)
      .then(
        () => false,
        () => true,
      )
  await eventually(gone, 10_000)
}
