import { RE2JS } from 're2js'
import { messageOf } from '../runtime/errors.ts'
import { invalidRef } from './ref-name.ts'

/** `spec.ref.tagFilter`. */
export interface TagFilter {
  /** RE2, as Go and so Flux have it: matching takes time linear in the tag's length, whatever the pattern. */
  pattern: string
  /** `$1`, `${1}`, `$name`, `${name}` stand for groups of the pattern, `$$` for a dollar (Go's regexp.Expand). */
  extract?: string
}

const maxPatternLength = 1024
const maxExtractLength = 256
/** Time is linear also in the compiled pattern's length: `\\pL{1000}` is short to write and slow on a million tags. */
const maxProgramLength = 200
const maxTagLength = 128

/**
 * A function that gives the text of a tag's version, and undefined for tags that the pattern does not match. Throws a StalledError that
 * names the field.
 */
export function makeTagFilter({ pattern, extract }: TagFilter): (tag: string) => string | undefined {
  const expression = compile(pattern)
  const groups = new Map(Object.entries(expression.namedGroups()))
  const parts = extract === undefined ? undefined : parseTemplate(extract, groups, expression.groupCount())
  return (tag) => {
    const matcher = tag.length > maxTagLength ? undefined : expression.matcher(tag)
    if (!matcher?.find()) return undefined
    if (!parts) return tag
    return parts.map((part) => (typeof part === 'string' ? part : (matcher.group(part) ?? ''))).join('')
  }
}

function compile(pattern: string): RE2JS {
  const field = 'spec.ref.tagFilter.pattern'
  if (pattern.length > maxPatternLength) throw invalidRef(field, pattern, `longer than ${maxPatternLength} characters`)
  let expression: RE2JS
  try {
    expression = RE2JS.compile(pattern)
  } catch (err) {
    throw invalidRef(field, pattern, messageOf(err))
  }
  const length = expression.programSize()
  if (length > maxProgramLength)
    throw invalidRef(field, pattern, `it compiles to ${length} instructions, at most ${maxProgramLength} are allowed`)
  return expression
}

/** Literal texts and numbers of groups. */
function parseTemplate(extract: string, groups: ReadonlyMap<string, number>, groupCount: number): (string | number)[] {
  const field = 'spec.ref.tagFilter.extract'
  if (extract.length > maxExtractLength) throw invalidRef(field, extract, `longer than ${maxExtractLength} characters`)
  const parts: (string | number)[] = []
  for (const [text, braced, bare] of extract.matchAll(/\$(?:\{(\w+)\}|(\w+)|\$)|[^$]+|\$/g)) {
    const name = braced ?? bare
    if (text === '$') throw invalidRef(field, extract, "a '$' that stands for nothing; write '$$'")
    if (name === undefined) parts.push(text === '$$' ? '$' : text)
    else {
      const group = /^\d{1,4}$/.test(name) ? Number(name) : groups.get(name)
      if (group === undefined || group > groupCount)
        throw invalidRef(field, extract, `the pattern has no group '${name}'`)
      parts.push(group)
    }
  }
  return parts
}
