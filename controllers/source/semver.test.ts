import assert from 'node:assert/strict'
import { makeRandom } from '../artifact/test-support.ts'
import { parseRange, parseVersion } from './semver.ts'

function matches(range: string, versions: string[]): string[] {
  const parsed = parseRange(range)
  return versions.filter((text) => parsed.includes(parseVersion(text)!))
}

describe('a version range', () => {
  const all = [
    '0.0.3',
    '0.0.4',
    '0.2.3',
    '0.2.9',
    '0.3.0',
    '1.0.0',
    '1.2.0',
    '1.2.3',
    '1.9.9',
    '2.0.0',
    '2.1.0',
    '3.0.0',
  ]
  const table: [string, string[]][] = [
    ['>=1.0.0, <2.0.0', ['1.0.0', '1.2.0', '1.2.3', '1.9.9']],
    ['>=1.0.0 <2.0.0', ['1.0.0', '1.2.0', '1.2.3', '1.9.9']],
    ['>= 1.2.3,<= 2', ['1.2.3', '1.9.9', '2.0.0', '2.1.0']],
    ['=>1.9.9 =<2.0.0', ['1.9.9', '2.0.0']],
    ['1.x', ['1.0.0', '1.2.0', '1.2.3', '1.9.9']],
    ['1.2.X || ^3', ['1.2.0', '1.2.3', '3.0.0']],
    ['1', ['1.0.0', '1.2.0', '1.2.3', '1.9.9']],
    ['=1.2', ['1.2.0', '1.2.3']],
    ['1.2.3', ['1.2.3']],
    ['v1.2.3', ['1.2.3']],
    ['*', all],
    ['x', all],
    ['~1', ['1.0.0', '1.2.0', '1.2.3', '1.9.9']],
    ['~1.2', ['1.2.0', '1.2.3']],
    ['~>1.2.1', ['1.2.3']],
    ['^1', ['1.0.0', '1.2.0', '1.2.3', '1.9.9']],
    ['^1.2.1', ['1.2.3', '1.9.9']],
    ['^0.2.3', ['0.2.3', '0.2.9']],
    ['^0.2', ['0.2.3', '0.2.9']],
    ['^0.0.3', ['0.0.3']],
    ['^0.0', ['0.0.3', '0.0.4']],
    ['^0', ['0.0.3', '0.0.4', '0.2.3', '0.2.9', '0.3.0']],
    ['^*', all],
    ['!=1.2.3 ^1', ['1.0.0', '1.2.0', '1.9.9']],
    ['!=1.x >0.2', ['0.3.0', '2.0.0', '2.1.0', '3.0.0']],
    ['!=1.2 ^1', ['1.0.0', '1.9.9']],
    ['>1', ['2.0.0', '2.1.0', '3.0.0']],
    ['>1.2', ['1.9.9', '2.0.0', '2.1.0', '3.0.0']],
    ['<=1.2', ['0.0.3', '0.0.4', '0.2.3', '0.2.9', '0.3.0', '1.0.0', '1.2.0', '1.2.3']],
    ['<1', ['0.0.3', '0.0.4', '0.2.3', '0.2.9', '0.3.0']],
    ['1.2 - 2.0', ['1.2.0', '1.2.3', '1.9.9', '2.0.0']],
    ['1.0.0 - 1.2.0 || 3.x', ['1.0.0', '1.2.0', '3.0.0']],
    ['>=01.02.00 <1.3', ['1.2.0', '1.2.3']],
  ]
  for (const [range, expected] of table) {
    it(`${range} has ${expected === all ? 'everything' : expected.join(' ')}`, () => {
      assert.deepEqual(matches(range, all), expected)
    })
  }

  it('has prereleases only where an alternative of it names one', () => {
    const versions = ['1.0.0-rc.1', '1.0.0', '2.0.0-beta.2', '2.0.0-beta.10', '2.0.0']
    assert.deepEqual(matches('>=1.0.0', versions), ['1.0.0', '2.0.0'])
    assert.deepEqual(matches('>=1.0.0-0', versions), versions)
    assert.deepEqual(matches('>2.0.0-beta.2', versions), ['2.0.0-beta.10', '2.0.0'])
    assert.deepEqual(matches('>=1.0.0-0 <2', versions), ['1.0.0-rc.1', '1.0.0', '2.0.0-beta.2', '2.0.0-beta.10'])
    assert.deepEqual(matches('1.0.0-rc.1 || 2.x', versions), ['1.0.0-rc.1', '2.0.0'])
  })

  for (const text of [
    '',
    'latest',
    '>',
    '1.2.3.4',
    '1,,2',
    '1.2.',
    '>=1 &&',
    '|| 1',
    '1.0.0 -',
    '^^1',
    '>=9'.repeat(2000),
    '9'.repeat(30),
  ]) {
    it(`does not take ${JSON.stringify(text.slice(0, 20))}`, () => {
      assert.throws(() => parseRange(text), RangeError)
    })
  }

  it('is read and applied without delay, whatever is written', () => {
    const seed = Date.now() % 2 ** 32
    console.log(`        seed ${seed}`)
    const random = makeRandom(seed)
    const version = parseVersion('1.2.3')!
    const alphabet = [
      '1',
      '0',
      '.',
      'x',
      '*',
      '-',
      '+',
      ' ',
      ',',
      '>',
      '<',
      '=',
      '!',
      '~',
      '^',
      '|',
      '||',
      'v',
      'rc.1',
      ' - ',
    ]
    for (let i = 0; i < 20_000; i++) {
      const text = Array.from({ length: random(40) }, () => alphabet[random(alphabet.length)]).join('')
      try {
        parseRange(text).includes(version)
      } catch (err) {
        assert.ok(err instanceof RangeError, `${JSON.stringify(text)}: ${String(err)}`)
      }
    }
  })
})

describe('a version', () => {
  it('has three numbers, perhaps a leading v and leading zeros', () => {
    assert.equal(parseVersion('v2025.07.03')?.version, '2025.7.3')
    assert.equal(parseVersion('1.2.3-rc.1+build')?.version, '1.2.3-rc.1')
  })
  for (const text of [
    'v1.0',
    '1',
    'vv1.0.0',
    '1.2.3.4',
    'release-1.2.3',
    '1.2.3-',
    '1.2.3-01',
    '1.2.99999999999999999999',
    '1.2.3\n',
    '',
  ]) {
    it(`is not ${JSON.stringify(text)}`, () => assert.equal(parseVersion(text), undefined))
  }
})
