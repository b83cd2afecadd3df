import type { Crd, Schema } from './crd.ts'

const lead = `# API reference

Generated from the files of this folder by \`npm run generate\`. Change those.

A field that is marked with * must be given. Lengths of time are written like \`1h30m\`, moments as RFC 3339 says.
`

/** The Markdown page that describes every field of every kind. */
export function referenceOf(crds: Crd[]): string {
  const contents = crds.map(({ kind }) => `- [${kind}](#${kind.toLowerCase()})`).join('\n')
  return [lead, contents, ...crds.map(kindSection)].join('\n') + '\n'
}

function kindSection(crd: Crd): string {
  const { kind, group, version, plural, schema } = crd
  const short = crd.shortNames.length > 0 ? `, short ${list(crd.shortNames)}` : ''
  const columns = crd.columns.map(({ name, priority }) => (priority ? `${name} (with \`-o wide\`)` : name))
  const parts = Object.entries(schema.properties ?? {}).filter(([name]) => name === 'spec' || name === 'status')
  return `
## ${kind}

${schema.description ?? ''}

\`${group}/${version}\`, \`${plural}\`${short}; categories ${list(crd.categories)}. \`kubectl get\` shows ${columns.join(', ')}.
${parts.map(([name, part]) => partTable(name, part)).join('')}`
}

function partTable(name: string, part: Schema): string {
  const rules = part['x-kubernetes-validations']?.map(({ message }) => `\nRule: ${message}.\n`) ?? []
  return `
### ${name}

${part.description ?? ''}
${rules.join('')}
| Field | Type | Meaning |
| --- | --- | --- |
${rows(part, '').join('\n')}
`
}

function rows(schema: Schema, prefix: string): string[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const path = `${prefix}${name}`
    const required = schema.required?.includes(name) ? ' *' : ''
    const row = `| \`${path}\`${required} | ${typeOf(field)} | ${cell([field.description ?? '', ...limits(field)].join(' '))} |`
    return [row, ...(field.items ? rows(field.items, `${path}[].`) : rows(field, `${path}.`))]
  })
}

function typeOf(schema: Schema): string {
  if (schema.items) return `list of ${typeOf(schema.items)}`
  if (schema.additionalProperties) return `map of ${typeOf(schema.additionalProperties)}`
  if (schema.enum) return schema.enum.map((value) => `\`${value}\``).join(' or ')
  return schema.format === 'date-time' ? 'time' : (schema.type ?? 'any')
}

function limits(schema: Schema): string[] {
  const { default: byDefault, pattern, minimum, minLength, maxLength } = schema
  const said: string[] = []
  if (byDefault !== undefined)
    said.push(`Default: \`${typeof byDefault === 'string' ? byDefault : JSON.stringify(byDefault)}\`.`)
  if (minimum !== undefined) said.push(`At least ${minimum}.`)
  if (minLength !== undefined) said.push(minLength === 1 ? 'Not empty.' : `At least ${minLength} characters.`)
  if (maxLength !== undefined) said.push(`At most ${maxLength} characters.`)
  if (pattern !== undefined) said.push(`Must match \`${pattern}\`.`)
  return said
}

function list(names: string[]): string {
  return names.map((name) => `\`${name}\``).join(', ')
}

/** A vertical bar would end the cell, also inside of code. */
function cell(text: string): string {
  return text.trim().replaceAll('|', '\\|')
}
