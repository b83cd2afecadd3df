import { compile, type JSONSchema } from 'json-schema-to-typescript'
import { format, type Options } from 'prettier'
import type { Crd, Schema } from './crd.ts'

/**
 * The TypeScript module of one kind: an interface for the object, one for each larger part of it, and its `Kind` constant.
 * `file` is named as the origin, `runtime` is the address of the module that exports Condition, Kind and KubeObject.
 */
export async function typesOf(crd: Crd, file: string, runtime: string, style: Options): Promise<string> {
  const { kind, schema } = crd
  const parts = Object.entries(schema.properties ?? {}).filter(([name]) => name === 'spec' || name === 'status')
  const named = new Naming(kind)
  const root: JSONSchema = {
    type: 'object',
    properties: Object.fromEntries(parts.map(([name, part]) => [name, named.give(name, part)])),
  }
  const compiled = await compile(root, 'Root', {
    additionalProperties: false,
    bannerComment: '',
    ignoreMinAndMaxItems: true,
  })
  const fields = parts.map(([name]) => `${name}${schema.required?.includes(name) ? '' : '?'}: ${kind}${capital(name)}`)
  const { group, version, plural } = crd
  const source = `
    // Generated from ${file} by \`npm run generate\`. Change it there.
    import type { ${/\bCondition\b/.test(compiled) ? 'Condition, ' : ''}Kind, KubeObject } from '${runtime}'

    /** ${schema.description ?? kind} */
    export interface ${kind} extends KubeObject { ${fields.join('\n')} }

    /** Where the API serves it. */
    export const ${kind}Kind: Kind<${kind}> = ${JSON.stringify({ group, version, kind, plural })}

    ${tidy(compiled.slice(compiled.indexOf('}\n') + 2))}`
  return format(source, { ...style, parser: 'typescript' })
}

/** Gives objects the title that the compiler makes an interface's name of. Equal objects share one, whatever their descriptions. */
class Naming {
  readonly #kind: string
  readonly #known = new Map<string, JSONSchema>()

  constructor(kind: string) {
    this.#kind = kind
  }

  give(name: string, schema: Schema): JSONSchema {
    if (name === 'conditions') return { description: schema.description, tsType: 'Condition[]' }
    if (schema.additionalProperties?.type === 'string') {
      return { description: schema.description, tsType: 'Record<string, string>' }
    }
    if (schema.items) return { ...schema, items: this.give(name.replace(/s$/, ''), schema.items) }
    if (!schema.properties) return { ...schema }
    const properties = Object.entries(schema.properties)
    const object: JSONSchema = {
      ...schema,
      properties: Object.fromEntries(properties.map(([key, value]) => [key, this.give(key, value)])),
    }
    if (properties.length === 1) return object
    const shape = JSON.stringify(schema, (key, value: unknown) => (key === 'description' ? undefined : value))
    const known = this.#known.get(shape) ?? { ...object, title: this.#kind + capital(name) }
    this.#known.set(shape, known)
    return known
  }
}

function capital(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1)
}

/** Comments on one line where they have one, and a blank line after each interface. */
function tidy(source: string): string {
  return source.replace(/\/\*\*\n\s*\* (.*)\n\s*\*\//g, '/** $1 */').replaceAll(/^}\n/gm, '}\n\n')
}
