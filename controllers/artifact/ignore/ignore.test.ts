import assert from 'node:assert/strict'
import { ignoreLimits, makeIgnore, type IgnoreRules } from './ignore.ts'
import { makeRandom } from '../test-support.ts'

/** Rules, then paths that are ignored and paths that are kept. */
interface Case {
  rules: string | IgnoreRules
  ignored?: string[]
  kept?: string[]
}

const cases: Record<string, Case> = {
  'no rules: version control and the default sets': {
    rules: '',
    ignored: [
      '.gitignore',
      'a/.gitmodules',
      '.gitattributes',
      'a.jpg',
      'b/c.png',
      'x.tar.gz',
      'y.zip',
      'a.wmv',
      'a.flv',
    ].concat(
      [
        'a.gif',
        'a.jpeg',
        '.github/workflows/w.yaml',
        'sub/.circleci/x',
        '.travis.yml',
        '.gitlab-ci.yml',
        'appveyor.yml',
      ],
      [
        '.drone.yml',
        'cloudbuild.yaml',
        'codeship-services.yml',
        'codeship-steps.yml',
        'a/.goreleaser.yml',
        '.sops.yaml',
        'b/c/.flux.yaml',
      ],
    ),
    kept: ['a.yaml', '.sourceignore', 'github/x', 'a.jpg.txt', 'zip', 'gz.tar', '.GITIGNORE'],
  },
  'one pattern: the default sets are gone, version control is not': {
    rules: '*.md',
    ignored: ['README.md', '.gitignore', 'a/.gitattributes'],
    kept: ['a.jpg', '.github/x', '.sops.yaml'],
  },
  'comments and blanks alone leave the default sets': { rules: '# *.md\n\n   \n', ignored: ['a.jpg'], kept: ['a.md'] },
  'a malformed pattern counts as one, and matches nothing': { rules: '[', kept: ['a.jpg', '['] },
  'a rule in any .sourceignore replaces the default sets everywhere': {
    rules: { sourceignores: new Map([['deep/er', 'x']]) },
    ignored: ['deep/er/x', 'deep/er/y/x'],
    kept: ['a.jpg', 'x', 'deep/x'],
  },
  'version control can be included on purpose': {
    rules: '!.gitignore',
    ignored: ['.gitmodules'],
    kept: ['.gitignore', 'a.jpg'],
  },
  'a name matches at any depth, and all that is below': {
    rules: 'b',
    ignored: ['b', 'a/b', 'a/b/c/d'],
    kept: ['ab', 'a/bb'],
  },
  'a glob matches any component': { rules: 'v*o', ignored: ['vulkano', 'a/vo/x'], kept: ['a/volume'] },
  'a slash at the end: folders alone': { rules: 'b/', ignored: ['b/x', 'a/b/x/y'], kept: ['b', 'a/b'] },
  'a slash at the start: from here on': { rules: '/b', ignored: ['b', 'b/c'], kept: ['a/b'] },
  'a slash inside: from here on': { rules: 'a/b', ignored: ['a/b', 'a/b/c'], kept: ['c/a/b', 'a', 'a/c'] },
  'slashes all over': { rules: '/a//b/', ignored: ['a/b/c'], kept: ['a/b'] },
  'a star stays within its component': { rules: '/a/*/c', ignored: ['a/b/c'], kept: ['a/c', 'a/b/b/c'] },
  'leading **': { rules: '**/a/b', ignored: ['a/b', 'x/a/b', 'a/x/a/b', 'x/y/a/b/c'], kept: ['a/x/b', 'b'] },
  'trailing **': { rules: 'a/**', ignored: ['a/b', 'a/b/c', 'a'], kept: ['b/a/c'] },
  '** in the middle': { rules: 'a/**/z', ignored: ['a/z', 'a/b/z', 'a/b/c/z/x'], kept: ['z', 'a/b', 'b/a/z'] },
  '** twice': { rules: '**/a/**/z.txt', ignored: ['a/z.txt', 'q/a/b/z.txt'], kept: ['lib/src/a/y.txt', 'z.txt'] },
  '** as a component with more, beside a slash, never matches': {
    rules: '/a/**b/c',
    kept: ['a/xb/c', 'a/b/c', 'a/x/b/c'],
  },
  '** alone is a star': { rules: '**\n!keep', ignored: ['a', 'a/b'], kept: ['keep', 'keep/a'] },
  'slashes and ** alone never match': { rules: '/\n//\n/**\n**/**\n!', kept: ['a', 'a/b'] },
  'the last match wins': {
    rules: '*.txt\n!a.txt\n/b/a.txt',
    ignored: ['c.txt', 'b/a.txt'],
    kept: ['a.txt', 'c/a.txt'],
  },
  'what lies in an excluded folder can be included, unlike in Git': {
    rules: '/dir\n!/dir/keep',
    ignored: ['dir/x', 'dir/y/keep'],
    kept: ['dir/keep', 'dir/keep/all/of/it'],
  },
  'all but one folder, less some of it': {
    rules: '/*\n!/deploy\n/deploy/**/*.md',
    ignored: ['README.md', 'src/a', 'deploy/a.md', 'deploy/x/y.md'],
    kept: ['deploy/a.yaml', 'deploy/x/y/z.yaml'],
  },
  'blanks at the end are dropped unless escaped': {
    rules: 'a  \nb\\ \nc\\  ',
    ignored: ['a', 'b '],
    kept: ['a  ', 'b', 'c', 'c '],
  },
  'tabs and blanks at the start are kept': { rules: ' a\nb\t', ignored: [' a', 'b\t'], kept: ['a', 'b'] },
  'lines may end as on Windows': { rules: 'a\r\n!a/b\r\n', ignored: ['a/c'], kept: ['a/b', 'a\r'] },
  'hash and exclamation mark are escaped by globs': {
    rules: '\\#a\n\\!b',
    ignored: ['#a', '!b'],
    kept: ['a', 'b', '\\#a'],
  },
  'a backslash before a slash is malformed': { rules: 'a\\/b', kept: ['a/b', 'a\\/b'] },
  'names are compared by bytes': { rules: 'ä', ignored: ['ä'], kept: ['a\u0308', 'Ä'] },
  'each .sourceignore holds for its folder only': {
    rules: {
      sourceignores: new Map([
        ['', 'root.txt'],
        ['a/b', '/sub.txt'],
        ['z', 'last.txt'],
      ]),
    },
    ignored: ['root.txt', 'q/root.txt', 'a/b/sub.txt', 'z/last.txt', 'z/y/last.txt'],
    kept: ['a/b/c/sub.txt', 'sub.txt', 'e/last.txt', 'a/c/sub.txt', 'a/b2/sub.txt'],
  },
  'a deeper .sourceignore wins, whatever the order they are given in': {
    rules: {
      sourceignores: new Map([
        ['a/+b', '!x'],
        ['a', 'x'],
        ['', '!x'],
      ]),
    },
    ignored: ['a/x', 'a/c/x'],
    kept: ['x', 'a/+b/x'],
  },
  'spec.ignore comes last': {
    rules: {
      sourceignores: new Map([
        ['', '!a'],
        ['d', '!a'],
      ]),
      specIgnore: 'a',
    },
    ignored: ['a', 'd/a'],
    kept: ['b'],
  },
  'an empty spec.ignore leaves the default sets': { rules: { specIgnore: '' }, ignored: ['a.jpg'], kept: ['a'] },
}

function matcherOf(rules: string | IgnoreRules): (path: string) => boolean {
  return makeIgnore(typeof rules === 'string' ? { specIgnore: rules } : rules)
}

describe('ignore rules', function () {
  this.timeout(60_000)

  for (const [name, { rules, ignored = [], kept = [] }] of Object.entries(cases)) {
    it(name, () => {
      const isIgnored = matcherOf(rules)
      assert.deepEqual(
        ignored.filter((path) => !isIgnored(path)),
        [],
        'should be ignored',
      )
      assert.deepEqual(kept.filter(isIgnored), [], 'should be kept')
    })
  }

  it('takes 10,000 lines and a file for each of them', () => {
    const lines = Array.from({ length: 10_000 }, (_, i) => (i % 2 ? `/dir${i % 100}/file${i}.txt` : `name${i}`))
    const isIgnored = makeIgnore({ specIgnore: lines.join('\n') })
    for (let i = 0; i < 10_000; i++) {
      assert.equal(isIgnored(i % 2 ? `dir${i % 100}/file${i}.txt` : `a/b/name${i}`), true)
      assert.equal(isIgnored(`dir/other${i}`), false)
    }
  })

  it('takes 10,000 lines of wildcards', () => {
    const lines = Array.from({ length: 10_000 }, (_, i) => `/src/**/gen*${i}/*.txt`)
    const isIgnored = makeIgnore({ specIgnore: lines.join('\n') })
    for (let i = 0; i < 100; i++) assert.equal(isIgnored(`src/a/b/generated${i}/x.txt`), true)
    for (let i = 0; i < 100; i++) assert.equal(isIgnored(`src/a/b/generated${i}/x.md`), false)
  })

  it('takes no exponential time for chains of ** and *', () => {
    const path = `${'a/'.repeat(100)}b`
    for (const pattern of ['**/'.repeat(1000) + 'c', '**/a/'.repeat(99) + 'c', '**/*a*/'.repeat(500) + 'c']) {
      const isIgnored = makeIgnore({ specIgnore: pattern })
      for (let i = 0; i < 20; i++) assert.equal(isIgnored(`${i}/${path}`), false, pattern.slice(0, 20))
    }
  })

  it('refuses more patterns, or longer ones, than it has a limit for', () => {
    const many = 'a\n'.repeat(ignoreLimits.patterns / 2 + 1)
    const message = /^invalid ignore rules: more than 20000 ignore patterns$/
    assert.throws(() => makeIgnore({ specIgnore: many, sourceignores: new Map([['', many]]) }), {
      reason: 'InvalidIgnore',
      message,
    })
    const long = { sourceignores: new Map([['a', 'x'.repeat(ignoreLimits.patternBytes + 1)]]) }
    assert.throws(() => makeIgnore(long), {
      message: /^invalid ignore rules: a pattern of more than 4096 bytes in "a\/.sourceignore": "x+…"$/,
    })
  })

  it('decides as a naive matcher does, for 20,000 random sets of rules', () => {
    const seed = Date.now() % 2 ** 32
    console.log(`        seed ${seed}`)
    const random = makeRandom(seed)
    for (let i = 0; i < 20_000; i++) {
      const rules = Array.from({ length: 1 + random(4) }, () => randomPattern(random))
      const path = Array.from({ length: 1 + random(4) }, () => ['a', 'b', 'ab', 'c'][random(4)]).join('/')
      const scope = ['', 'a', 'a/b'][random(3)]!
      const isIgnored = makeIgnore({ sourceignores: new Map([[scope, rules.join('\n')]]) })
      const expected = naive(rules, scope, path)
      assert.equal(isIgnored(path), expected, `seed ${seed}: ${JSON.stringify(rules)} in '${scope}' on ${path}`)
    }
  })
})

function randomPattern(random: (limit: number) => number): string {
  const parts = ['a', 'b', 'ab', 'c', '*', '?', '**', 'a*', '[ab]', '']
  const body = Array.from({ length: 1 + random(4) }, () => parts[random(parts.length)]).join('/')
  return `${random(3) ? '' : '!'}${body}${random(4) ? '' : '/'}` || 'a'
}

/** The contract written down once more, with recursion, for every rule and every prefix of the path. */
function naive(rules: string[], scope: string, path: string): boolean {
  const domain = scope === '' ? [] : scope.split('/')
  const components = path.split('/')
  if (domain.some((name, i) => components[i] !== name) || components.length <= domain.length) return false
  const below = components.slice(domain.length)
  let ignored = false
  for (const rule of rules) {
    const body = rule.replace(/^!/, '').replace(/\/$/, '')
    for (let length = 1; length <= below.length; length++) {
      if (rule.endsWith('/') && length === below.length) continue
      const prefix = below.slice(0, length)
      if (body.includes('/') ? naivePath(body, prefix) : naiveGlob(body, prefix.at(-1)!))
        ignored = !rule.startsWith('!')
    }
  }
  return ignored
}

function naivePath(body: string, prefix: string[]): boolean {
  // An empty component is as if it were not there, but takes away what any number of components before it stood for.
  const steps = `/${body}`
    .replaceAll(/(\/\*\*)*\/(?=\/|$)/g, '')
    .split('/')
    .slice(1)
  while (steps.at(-1) === '**') steps.pop()
  return steps.length > 0 && naiveSteps(steps, prefix)
}

function naiveSteps([step, ...steps]: string[], components: string[]): boolean {
  if (step === undefined) return components.length === 0
  const [name, ...rest] = components
  if (step === '**') return naiveSteps(steps, components) || (name !== undefined && naiveSteps([step, ...steps], rest))
  return name !== undefined && naiveGlob(step, name) && naiveSteps(steps, rest)
}

function naiveGlob(glob: string, name: string): boolean {
  const [char, ...rest] = Array.from(glob)
  if (char === undefined) return name === ''
  const tail = rest.join('')
  if (char === '*') return naiveGlob(tail, name) || (name !== '' && naiveGlob(glob, name.slice(1)))
  if (name === '') return false
  if (glob.startsWith('[ab]')) return /[ab]/.test(name[0]!) && naiveGlob(glob.slice(4), name.slice(1))
  return (char === '?' || char === name[0]) && naiveGlob(tail, name.slice(1))
}
