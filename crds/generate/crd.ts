import { readFile } from 'node:fs/promises'
import { load } from 'js-yaml'

/** The part of an OpenAPI v3 schema that the kinds use (`apiextensions.k8s.io/v1` JSONSchemaProps). */
export interface Schema {
  type?: 'object' | 'array' | 'string' | 'integer' | 'boolean'
  description?: string
  properties?: Record<string, Schema>
  required?: string[]
  items?: Schema
  additionalProperties?: Schema
  enum?: string[]
  pattern?: string
  format?: string
  default?: string | Record<string, number>
  minimum?: number
  minLength?: number
  maxLength?: number
  'x-kubernetes-validations'?: { rule: string; message: string }[]
}

/** A column that `kubectl get` prints; `priority` above 0 only with `-o wide`. */
export interface Column {
  name: string
  type: string
  jsonPath: string
  priority?: number
}

/** One served version of a CustomResourceDefinition, flattened. */
export interface Crd {
  group: string
  version: string
  kind: string
  plural: string
  shortNames: string[]
  categories: string[]
  columns: Column[]
  schema: Schema
}

interface Manifest {
  kind: 'CustomResourceDefinition'
  spec: {
    group: string
    names: { kind: string; plural: string; shortNames?: string[]; categories?: string[] }
    versions: { name: string; additionalPrinterColumns?: Column[]; schema: { openAPIV3Schema: Schema } }[]
  }
}

/** Reads a CustomResourceDefinition with exactly one version; throws where the file holds anything else. */
export async function readCrd(file: string): Promise<Crd> {
  const manifest = load(await readFile(file, 'utf8'))
  if (!isManifest(manifest)) throw new Error(`${file}: not a CustomResourceDefinition`)
  const { spec } = manifest
  const [version, ...others] = spec.versions
  if (!version || others.length > 0) throw new Error(`${file}: expected one version, found ${spec.versions.length}`)
  return {
    group: spec.group,
    version: version.name,
    kind: spec.names.kind,
    plural: spec.names.plural,
    shortNames: spec.names.shortNames ?? [],
    categories: spec.names.categories ?? [],
    columns: version.additionalPrinterColumns ?? [],
    schema: version.schema.openAPIV3Schema,
  }
}

function isManifest(value: unknown): value is Manifest {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'CustomResourceDefinition'
}
