import { compileGlob, type Glob } from './glob.ts'

/** One line of ignore rules, in the form that is quick to match. */
export interface IgnorePattern {
  /** `!`: what matches is kept. */
  include: boolean
  /** Trailing `/`: only folders match, and with them all that is below. */
  dirOnly: boolean
  /** Without `/` inside: matches a component at any depth. */
  name?: Glob
  /** With `/` inside: matches from the folder of the rules on; `**` stands for any number of components. */
  steps?: Step[]
}

type Step = Glob | '**'

/** The lines of a text that are patterns: neither blank nor a comment. */
export function ignoreLines(text: string): string[] {
  return text
    .split('\n')
    .map((line) => (line.endsWith('\r') ? line.slice(0, -1) : line))
    .filter((line) => !line.startsWith('#') && line.trim() !== '')
}

/** One pattern; undefined where it can match nothing (malformed, or nothing but `/` and `**`). */
export function parseIgnorePattern(line: string): IgnorePattern | undefined {
  const include = line.startsWith('!')
  let text = include ? line.slice(1) : line
  if (!text.endsWith('\\ ')) text = withoutTrailingSpaces(text)
  const dirOnly = text.endsWith('/')
  if (dirOnly) text = text.slice(0, -1)
  if (!text.includes('/')) {
    const name = compileGlob(text)
    return name && name.literal !== '' ? { include, dirOnly, name } : undefined
  }
  const steps = parseSteps(text)
  return steps && { include, dirOnly, steps }
}

// A regular expression for this would look at a long run of spaces once per space.
function withoutTrailingSpaces(text: string): string {
  let end = text.length
  while (text[end - 1] === ' ') end--
  return text.slice(0, end)
}

function parseSteps(text: string): Step[] | undefined {
  const steps: Step[] = []
  for (const part of text.split('/')) {
    if (part === '') {
      if (steps.at(-1) === '**') steps.pop()
    } else if (part === '**') {
      if (steps.at(-1) !== '**') steps.push('**')
    } else {
      const glob = part.includes('**') ? undefined : compileGlob(part)
      if (!glob) return undefined
      steps.push(glob)
    }
  }
  if (steps.at(-1) === '**') steps.pop() // what is below a match matches anyway
  return steps.length > 0 ? steps : undefined
}

/** Whether all components together match all steps; as in a glob only the last `**` is ever taken back. */
export function matchesSteps(steps: Step[], components: string[]): boolean {
  let step = 0
  let at = 0
  let runStep = -1
  let runAt = 0
  while (at < components.length) {
    const current = steps[step]
    if (current === '**') {
      runStep = step++
      runAt = at
    } else if (current?.matches(components[at]!)) {
      step++
      at++
    } else {
      if (runStep < 0) return false
      step = runStep + 1
      at = ++runAt
    }
  }
  return step === steps.length
}
