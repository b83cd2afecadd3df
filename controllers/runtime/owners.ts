import { apiVersionOf, groupOf, type Kind, type KubeObject, type OwnerReference } from './kind.ts'

/** `group/kind/namespace/name`, the key of owner and source-reference indexes. The version is no part of it: it may change under a reference. */
export function referenceKey(group: string, kind: string, namespace: string, name: string): string {
  return `${group}/${kind}/${namespace}/${name}`
}

/** The reference key of every owner of an object. Owners live in the object's own namespace (Kubernetes API conventions). */
export function ownerKeys(obj: KubeObject): string[] {
  return (obj.metadata.ownerReferences ?? []).map((owner) =>
    referenceKey(groupOf(owner.apiVersion), owner.kind, obj.metadata.namespace ?? '', owner.name),
  )
}

/** The reference by which `owner` controls what it creates: removed by garbage collection with it, and not before it in foreground deletion. */
export function controllerReference(kind: Kind, owner: KubeObject): OwnerReference {
  return {
    apiVersion: apiVersionOf(kind),
    kind: kind.kind,
    name: owner.metadata.name,
    uid: owner.metadata.uid ?? '',
    controller: true,
    blockOwnerDeletion: true,
  }
}
