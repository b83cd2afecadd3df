/** A reference to the object that owns another one, as in `metadata.ownerReferences` (Kubernetes API conventions). */
export interface OwnerReference {
  apiVersion: string
  kind: string
  name: string
  uid: string
  controller?: boolean
  blockOwnerDeletion?: boolean
}

/** The part of `metadata` that controllers read. */
export interface ObjectMeta {
  name: string
  namespace?: string
  uid?: string
  resourceVersion?: string
  generation?: number
  creationTimestamp?: string
  deletionTimestamp?: string
  labels?: Record<string, string>
  annotations?: Record<string, string>
  finalizers?: string[]
  ownerReferences?: OwnerReference[]
}

/** A status condition (`metav1.Condition`). */
export interface Condition {
  type: string
  status: 'True' | 'False' | 'Unknown'
  reason: string
  message: string
  lastTransitionTime: string
  observedGeneration?: number
}

/** Any Kubernetes object. */
export interface KubeObject {
  apiVersion?: string
  kind?: string
  metadata: ObjectMeta
}

/** An object that reports its state by conditions; what kstatus and `kubectl wait` read. */
export interface ConditionedObject extends KubeObject {
  status?: { observedGeneration?: number; conditions?: Condition[] }
}

/** Where the API serves one kind of object; `T` is the object's type. */
export interface Kind<T extends KubeObject = KubeObject> {
  /** Empty for the core group. */
  group: string
  version: string
  kind: string
  plural: string
  /** False for cluster-scoped kinds. Defaults to true. */
  namespaced?: boolean
  /** Never set: it ties `T` to the value. */
  readonly object?: T
}

/** The name of an object within its kind. `namespace` is '' for cluster-scoped objects. */
export interface ObjectKey {
  namespace: string
  name: string
}

/** `group/version`, or `version` for the core group. */
export function apiVersionOf(kind: Kind): string {
  return kind.group ? `${kind.group}/${kind.version}` : kind.version
}

/** The group of an `apiVersion`: what precedes the slash, '' without one. */
export function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf('/')
  return slash < 0 ? '' : apiVersion.slice(0, slash)
}

/** `namespace/name` as one string, the key of queues and caches. */
export function keyOf(obj: KubeObject): string {
  return `${obj.metadata.namespace ?? ''}/${obj.metadata.name}`
}

/** The name of an object within its kind. */
export function objectKeyOf(obj: KubeObject): ObjectKey {
  return { namespace: obj.metadata.namespace ?? '', name: obj.metadata.name }
}

/** The parts of a `namespace/name` string. */
export function parseKey(key: string): ObjectKey {
  const slash = key.indexOf('/')
  return { namespace: key.slice(0, slash), name: key.slice(slash + 1) }
}

/** Whether objects can have this name (RFC 1123 subdomain): as part of a path, one such as `..` would ask for something else. */
export function isObjectName(name: string): boolean {
  return name.length <= 253 && /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(name)
}

/** The REST path of a kind's collection or, with `name`, of one object. An empty namespace means all of them. */
export function apiPath(kind: Kind, namespace = '', name = ''): string {
  const root = kind.group ? `/apis/${kind.group}/${kind.version}` : `/api/${kind.version}`
  const scope = namespace && kind.namespaced !== false ? `/namespaces/${encodeURIComponent(namespace)}` : ''
  return `${root}${scope}/${kind.plural}${name ? `/${encodeURIComponent(name)}` : ''}`
}
