/** A compiled pattern for one path component. */
export interface Glob {
  /** Set when the pattern has no wildcard: the only name that matches. */
  literal: string | undefined
  matches(name: string): boolean
}

const anyChar = -1
const anyRun = -2
type Token = number | { negated: boolean; ranges: [number, number][] }

/**
 * Compiles what Go's `filepath.Match` accepts: `*`, `?`, `[a-z]`, `[^a]`, `\x`. Undefined where that is malformed: it matches nothing then.
 * Matching takes at most (length of the name) × (length of the pattern) steps, whatever the pattern.
 */
export function compileGlob(pattern: string): Glob | undefined {
  const tokens = tokenize(Array.from(pattern))
  if (!tokens) return undefined
  const literal = literalOf(tokens)
  if (literal !== undefined) return { literal, matches: (name) => name === literal }
  const suffix = tokens[0] === anyRun ? literalOf(tokens.slice(1)) : undefined
  if (suffix !== undefined) return { literal, matches: (name) => name.endsWith(suffix) }
  const shortest = tokens.filter((token) => token !== anyRun).length
  return { literal, matches: (name) => name.length >= shortest && matchTokens(tokens, name) }
}

function literalOf(tokens: Token[]): string | undefined {
  let text = ''
  for (const token of tokens) {
    if (typeof token !== 'number' || token < 0) return undefined
    text += String.fromCodePoint(token)
  }
  return text
}

function tokenize(chars: string[]): Token[] | undefined {
  const tokens: Token[] = []
  let at = 0
  while (at < chars.length) {
    const char = chars[at++]!
    if (char === '*') {
      if (tokens.at(-1) !== anyRun) tokens.push(anyRun)
    } else if (char === '?') {
      tokens.push(anyChar)
    } else if (char === '[') {
      const set = readSet(chars, at)
      if (!set) return undefined
      tokens.push(set.token)
      at = set.end
    } else {
      const code = char === '\\' ? chars[at++] : char
      if (code === undefined) return undefined
      tokens.push(code.codePointAt(0)!)
    }
  }
  return tokens
}

function readSet(chars: string[], start: number): { token: Token; end: number } | undefined {
  const negated = chars[start] === '^'
  const ranges: [number, number][] = []
  let at = negated ? start + 1 : start
  while (chars[at] !== ']' || ranges.length === 0) {
    const low = readSetChar(chars, at)
    if (!low) return undefined
    const high = chars[low.end] === '-' ? readSetChar(chars, low.end + 1) : low
    if (!high) return undefined
    ranges.push([low.code, high.code])
    at = high.end
  }
  return { token: { negated, ranges }, end: at + 1 }
}

function readSetChar(chars: string[], at: number): { code: number; end: number } | undefined {
  const escaped = chars[at] === '\\'
  const char = chars[escaped ? at + 1 : at]
  if (char === undefined || (!escaped && (char === '-' || char === ']'))) return undefined
  return { code: char.codePointAt(0)!, end: at + (escaped ? 2 : 1) }
}

// Only the last `*` is ever taken back: an earlier one could not reach further than it did. That is what keeps this from being exponential.
function matchTokens(tokens: Token[], name: string): boolean {
  let token = 0
  let at = 0
  let runToken = -1
  let runAt = 0
  while (at < name.length) {
    const code = name.codePointAt(at)!
    if (tokens[token] === anyRun) {
      runToken = token++
      runAt = at
    } else if (accepts(tokens[token], code)) {
      token++
      at += widthOf(code)
    } else {
      if (runToken < 0) return false
      token = runToken + 1
      runAt += widthOf(name.codePointAt(runAt)!)
      at = runAt
    }
  }
  while (tokens[token] === anyRun) token++
  return token === tokens.length
}

function accepts(token: Token | undefined, code: number): boolean {
  if (typeof token === 'number') return token === code || token === anyChar
  return token !== undefined && token.ranges.some(([low, high]) => low <= code && code <= high) !== token.negated
}

function widthOf(code: number): number {
  return code > 0xffff ? 2 : 1
}
