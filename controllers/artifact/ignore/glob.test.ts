import assert from 'node:assert/strict'
import { compileGlob } from './glob.ts'
import { makeRandom } from '../test-support.ts'

/** What Go's documentation of `filepath.Match` says of names without a separator: pattern, name, whether it matches. */
const table: [string, string, boolean][] = [
  ['abc', 'abc', true],
  ['abc', 'abcd', false],
  ['', '', true],
  ['', 'a', false],
  ['*', '', true],
  ['*', 'anything', true],
  ['*c', 'abc', true],
  ['a*', 'a', true],
  ['a*', 'ba', false],
  ['a*b*c*d', 'axbxcxd', true],
  ['a*b*c*d', 'abcdx', false],
  ['a*b?c*x', 'abxbbxdbxebxczzx', true],
  ['a*b?c*x', 'abxbbxdbxebxczzy', false],
  ['**', 'abc', true],
  ['a**c', 'abbc', true],
  ['a?c', 'abc', true],
  ['a?c', 'ac', false],
  ['a?b', 'a☺b', true],
  ['a??b', 'a☺b', false],
  ['a?b', 'a😀b', true],
  ['*?', '😀', true],
  ['ab[c]', 'abc', true],
  ['ab[b-d]', 'abc', true],
  ['ab[e-g]', 'abc', false],
  ['ab[^c]', 'abc', false],
  ['ab[^b-d]', 'abe', true],
  ['ab[!c]', 'ab!', true],
  ['ab[!c]', 'abc', true],
  ['[☹-☻]', '☺', true],
  ['a[^a]b', 'a☺b', true],
  ['[a-ζ]*', 'α', true],
  ['*[a-ζ]', 'A', false],
  ['[z-a]', 'm', false],
  ['[*]', '*', true],
  ['[*]', 'a', false],
  ['[?]', '?', true],
  ['[a^]', '^', true],
  ['[\\]a]', ']', true],
  ['[\\-]', '-', true],
  ['[x\\-]', '-', true],
  ['[x\\-]', 'z', false],
  ['[\\-x]', 'a', false],
  ['a\\*b', 'a*b', true],
  ['a\\*b', 'axb', false],
  ['\\#', '#', true],
  ['\\!x', '!x', true],
  ['\\\\', '\\', true],
  ['\\a', 'a', true],
  [']', ']', true],
  ['-', '-', true],
  ['.*', '.git', true],
  ['*', '.git', true],
  ['*.tar.gz', 'a.tar.gz', true],
  ['*.tar.gz', '.tar.gz', true],
]

const malformed = [
  '[',
  '[^',
  '[]',
  '[^]',
  '[]a]',
  '[-]',
  '[-x]',
  '[x-]',
  '[a-b-c]',
  'a[',
  '[a',
  '\\',
  'a\\',
  '[\\',
  '[a\\',
  '[a-\\',
  'v[ou]l[',
]

/** Another way to do the same: translate to a regular expression. Fine for short patterns only. */
function reference(pattern: string, name: string): boolean {
  let source = ''
  for (let at = 0; at < pattern.length; at++) {
    const char = pattern[at]!
    if (char === '*') source += '[^]*'
    else if (char === '?') source += '[^]'
    else if (char === '[') {
      const end = pattern.indexOf(']', at)
      source += pattern.slice(at, end + 1)
      at = end
    } else if (char === '\\') source += `[${pattern[++at]}]`
    else source += char.replace(/[.+(){}|^$]/, '\\$&')
  }
  return new RegExp(`^${source}$`).test(name)
}

describe('glob', function () {
  this.timeout(60_000)

  for (const [pattern, name, expected] of table) {
    it(`${pattern} ${expected ? 'matches' : 'does not match'} '${name}'`, () => {
      assert.equal(compileGlob(pattern)?.matches(name), expected)
    })
  }

  for (const pattern of malformed) {
    it(`takes ${pattern} for malformed`, () => assert.equal(compileGlob(pattern), undefined))
  }

  it('knows the only name that matches a pattern without wildcards', () => {
    assert.equal(compileGlob('a\\*b')?.literal, 'a*b')
    assert.equal(compileGlob('a*b')?.literal, undefined)
    assert.equal(compileGlob('[a]')?.literal, undefined)
  })

  it('does as a regular expression does, for 20,000 random patterns', () => {
    const seed = Date.now() % 2 ** 32
    console.log(`        seed ${seed}`)
    const random = makeRandom(seed)
    const pieces = ['a', 'b', 'c', '*', '*', '?', '[ab]', '[^a]', '[a-c]', '.', '\\*', '\\b']
    const make = (parts: string[], most: number): string =>
      Array.from({ length: random(most + 1) }, () => parts[random(parts.length)]).join('')
    for (let i = 0; i < 20_000; i++) {
      const pattern = make(pieces, 7)
      const name = make(['a', 'b', 'c', '.', '*'], 8)
      assert.equal(compileGlob(pattern)?.matches(name), reference(pattern, name), `seed ${seed}: ${pattern} on ${name}`)
    }
  })

  it('takes no exponential time', () => {
    const name = 'a'.repeat(255)
    for (const pattern of [`${'*a'.repeat(1000)}b`, `${'a*'.repeat(120)}b`, `*${'a'.repeat(126)}b`, '*'.repeat(4096)]) {
      const glob = compileGlob(pattern)!
      for (let i = 0; i < 1000; i++) assert.equal(glob.matches(name), pattern.endsWith('*'))
    }
  })
})
