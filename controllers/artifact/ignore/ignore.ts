import { ReconcileError } from '../../runtime/errors.ts'
import { ignoreLines, matchesSteps, parseIgnorePattern, type IgnorePattern } from './ignore-pattern.ts'
import { quote } from '../quote.ts'

/** The name of the files that hold ignore rules for the folder they lie in. */
export const ignoreFileName = '.sourceignore'

/** What ignore rules may hold at most: patterns over all files and `spec.ignore`, bytes of one pattern (none can match a longer path), bytes of all files. */
export const ignoreLimits = { patterns: 20_000, patternBytes: 4096, fileBytes: 1024 * 1024 } as const

const vcs = ['.git/', '.gitignore', '.gitmodules', '.gitattributes']
const extensions = ['*.jpg', '*.jpeg', '*.gif', '*.png', '*.wmv', '*.flv', '*.tar.gz', '*.zip']
const ci = ['.github/', '.circleci/', '.travis.yml', '.gitlab-ci.yml', 'appveyor.yml', '.drone.yml', 'cloudbuild.yaml']
const codeship = ['codeship-services.yml', 'codeship-steps.yml']
const extra = ['**/.goreleaser.yml', '**/.sops.yaml', '**/.flux.yaml']
const defaults = [...extensions, ...ci, ...codeship, ...extra]

/** The rules of one tree. */
export interface IgnoreRules {
  /** The text of every `.sourceignore` by the folder it lies in, '' for the root. */
  sourceignores?: ReadonlyMap<string, string> | undefined
  /** `spec.ignore`. */
  specIgnore?: string | undefined
}

/** The patterns of one folder; a higher index wins. Those without a wildcard are found by a look-up, with `/` at the end for folders alone. */
interface Scope {
  depth: number
  literals: Map<string, number>
  wildcards: { index: number; pattern: IgnorePattern }[]
}

/** What is known of a folder: the last pattern that matched it or a folder above it, and the scopes that hold for what lies in it. */
interface FolderState {
  matched: number
  scopes: Scope[]
}

/**
 * Compiles the rules into "is this file ignored?". Flux's contract: any pattern of the user replaces the default sets, `spec.ignore` comes
 * last, the last match wins, and a match on a folder holds for all that is below it. Throws InvalidIgnore beyond the limits.
 */
export function makeIgnore(rules: IgnoreRules): (path: string) => boolean {
  const includes: boolean[] = []
  const scopes = new Map<string, Scope>()
  for (const { folder, lines } of groupsOf(rules)) {
    const scope = scopes.get(folder) ?? makeScope(folder)
    scopes.set(folder, scope)
    for (const line of lines) {
      const pattern = parseIgnorePattern(line)
      if (pattern) addPattern(scope, pattern, includes.push(pattern.include) - 1)
    }
  }
  const states = new Map<string, FolderState>()
  return (path) => {
    const { matched, scopes: parents } = folderState(parentOf(path), scopes, states)
    const last = lastMatch(parents, path, false, matched)
    return last >= 0 && !includes[last]
  }
}

/** Orders paths as a walk does that takes a folder's content right after the folder: bytewise, component by component. */
export function sortKey(path: string): string {
  const utf8 = /[^\0-\x7f]/.test(path) ? Buffer.from(path, 'utf8').toString('latin1') : path
  return utf8.replaceAll('/', '\0')
}

interface Group {
  folder: string
  lines: string[]
}

function groupsOf({ sourceignores = new Map(), specIgnore = '' }: IgnoreRules): Group[] {
  const folders = [...sourceignores.keys()].toSorted((a, b) => (sortKey(a) < sortKey(b) ? -1 : 1))
  const own: Group[] = folders.map((folder) => {
    const lines = ignoreLines(sourceignores.get(folder)!)
    checkLines(lines, folder ? `${folder}/${ignoreFileName}` : ignoreFileName)
    return { folder, lines }
  })
  const specLines = ignoreLines(specIgnore)
  checkLines(specLines, 'spec.ignore')
  own.push({ folder: '', lines: specLines })

  const count = own.reduce((sum, { lines }) => sum + lines.length, 0)
  if (count > ignoreLimits.patterns) throw invalid(`more than ${ignoreLimits.patterns} ignore patterns`)
  return [{ folder: '', lines: count > 0 ? vcs : [...vcs, ...defaults] }, ...own]
}

function checkLines(lines: string[], where: string): void {
  const long = lines.find((line) => Buffer.byteLength(line) > ignoreLimits.patternBytes)
  if (long)
    throw invalid(`a pattern of more than ${ignoreLimits.patternBytes} bytes in ${quote(where)}: ${quote(long, 40)}`)
}

function invalid(what: string): ReconcileError {
  return new ReconcileError('InvalidIgnore', `invalid ignore rules: ${what}`)
}

function makeScope(folder: string): Scope {
  return { depth: folder ? folder.split('/').length : 0, literals: new Map(), wildcards: [] }
}

function addPattern(scope: Scope, pattern: IgnorePattern, index: number): void {
  const literal = literalOf(pattern)
  if (literal === undefined) scope.wildcards.push({ index, pattern })
  else scope.literals.set(pattern.dirOnly ? `${literal}/` : literal, index)
}

/** The key of a pattern without wildcards: a name, or a path with `/` in front, as both kinds share one map. */
function literalOf({ name, steps }: IgnorePattern): string | undefined {
  if (name) return name.literal
  const parts = steps!.map((step) => (step === '**' ? undefined : step.literal))
  return parts.includes(undefined) ? undefined : `/${parts.join('/')}`
}

function folderState(folder: string, scopes: Map<string, Scope>, states: Map<string, FolderState>): FolderState {
  const known = states.get(folder)
  if (known) return known
  const own = scopes.get(folder)
  let state: FolderState = { matched: -1, scopes: own ? [own] : [] }
  if (folder !== '') {
    const parent = folderState(parentOf(folder), scopes, states)
    const matched = lastMatch(parent.scopes, folder, true, parent.matched)
    state = { matched, scopes: own ? [...parent.scopes, own] : parent.scopes }
  }
  states.set(folder, state)
  return state
}

/** The highest index above `floor` of a pattern that matches this very path, else `floor`. */
function lastMatch(scopes: Scope[], path: string, isFolder: boolean, floor: number): number {
  const components = path.split('/')
  const name = components.at(-1)!
  let best = floor
  for (const { depth, literals, wildcards } of scopes) {
    const below = depth > 0 ? components.slice(depth) : components
    const keys = [name, depth > 0 ? `/${below.join('/')}` : `/${path}`]
    for (const key of isFolder ? [...keys, ...keys.map((each) => `${each}/`)] : keys) {
      best = Math.max(best, literals.get(key) ?? -1)
    }
    for (let i = wildcards.length - 1; i >= 0 && wildcards[i]!.index > best; i--) {
      const { index, pattern } = wildcards[i]!
      if (pattern.dirOnly && !isFolder) continue
      if (pattern.name ? pattern.name.matches(name) : matchesSteps(pattern.steps!, below)) best = index
    }
  }
  return best
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(path.lastIndexOf('/'), 0))
}
