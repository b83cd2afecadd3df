import { StalledError } from '../runtime/errors.ts'

const maxRefNameBytes = 1024

/**
 * Checks the name of a branch, tag or ref by the rules of git-check-ref-format(1), and refuses a leading `-` and more than 1,024 bytes.
 * Throws a StalledError that names the field.
 */
export function checkRefName(field: string, name: string): void {
  const rule = brokenRule(name)
  if (rule) throw invalidRef(field, name, rule)
}

/** A value of `spec.ref` that only an edit of the spec can mend. */
export function invalidRef(field: string, value: string, rule: string): StalledError {
  const start = JSON.stringify(value.length > 100 ? `${value.slice(0, 100)}...` : value).replace(/\p{C}/gu, '?')
  return new StalledError('GitOperationFailed', `invalid ${field} ${start}: ${rule}`)
}

/** The rule that a name breaks; undefined for a good name. */
export function brokenRule(name: string): string | undefined {
  if (name === '') return 'must not be empty'
  if (Buffer.byteLength(name) > maxRefNameBytes) return `longer than ${maxRefNameBytes} bytes`
  if (name.startsWith('-')) return "must not start with '-'"
  if (/[\p{Cc}\p{Cs}\u2028\u2029]/u.test(name)) return 'contains a control character'
  if (/[ ~^:?*[\\]/.test(name)) return 'contains one of: space ~ ^ : ? * [ \\'
  if (name.includes('..')) return "contains '..'"
  if (name.includes('@{') || name === '@') return "contains '@{' or is '@'"
  if (name.endsWith('.')) return "must not end with '.'"
  const components = name.split('/')
  if (components.includes('')) return "starts or ends with '/' or contains '//'"
  if (components.some((c) => c.startsWith('.') || c.endsWith('.lock'))) {
    return "has a component that starts with '.' or ends with '.lock'"
  }
  return undefined
}
