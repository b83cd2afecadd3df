import assert from 'node:assert/strict'
import { StalledError } from '../runtime/errors.ts'
import { makeTagFilter, type TagFilter } from './tag-filter.ts'

describe('the filter of tags', () => {
  const table: [TagFilter, string, string | undefined][] = [
    [{ pattern: '^app-' }, 'app-1.2.3', 'app-1.2.3'],
    [{ pattern: '^app-' }, 'web-1.2.3', undefined],
    [{ pattern: '^app-(?P<version>.+)$', extract: '$version' }, 'app-1.2.3', '1.2.3'],
    [{ pattern: '^app-(?<version>.+)$', extract: '${version}' }, 'app-1.2.3', '1.2.3'],
    [{ pattern: '^(\\d+)_(\\d+)_(\\d+)$', extract: 'v${1}.${2}.$3' }, '1_2_3', 'v1.2.3'],
    [{ pattern: '^charts/(.*)/v(.*)$', extract: '$2' }, 'charts/podinfo/v6.7.0', '6.7.0'],
    [{ pattern: '(a)?b', extract: '$1$$' }, 'b', '$'],
    [{ pattern: 'x', extract: '$0' }, 'axb', 'x'],
    [{ pattern: '' }, 'anything', 'anything'],
    [{ pattern: '.' }, 'x'.repeat(129), undefined],
  ]
  for (const [filter, tag, version] of table) {
    it(`makes ${version} of ${tag.slice(0, 30)} by ${JSON.stringify(filter)}`, () =>
      assert.equal(makeTagFilter(filter)(tag), version))
  }

  const refused: [TagFilter, RegExp][] = [
    [{ pattern: '(' }, /invalid spec\.ref\.tagFilter\.pattern "\(": .*missing/],
    [{ pattern: '(?=x)' }, /spec\.ref\.tagFilter\.pattern/],
    [{ pattern: '(a)\\1' }, /spec\.ref\.tagFilter\.pattern/],
    [{ pattern: 'a'.repeat(1025) }, /longer than 1024 characters/],
    [{ pattern: '\\pL{1000}' }, /instructions, at most 200/],
    [{ pattern: '((a{100}){100}){100}' }, /repeat/],
    [{ pattern: 'x', extract: '$1' }, /spec\.ref\.tagFilter\.extract "\$1": the pattern has no group '1'/],
    [{ pattern: 'x', extract: '$constructor' }, /no group 'constructor'/],
    [{ pattern: 'x', extract: '$__proto__' }, /no group '__proto__'/],
    [{ pattern: 'x', extract: 'a$' }, /stands for nothing/],
    [{ pattern: 'x', extract: 'a'.repeat(257) }, /longer than 256 characters/],
  ]
  for (const [filter, message] of refused) {
    it(`is refused: ${JSON.stringify(filter).slice(0, 60)}`, () =>
      assert.throws(
        () => makeTagFilter(filter),
        (err) => err instanceof StalledError && message.test(err.message),
      ))
  }

  it('takes a time that grows with the length of a tag, not with the ways to match it', () => {
    const matches = makeTagFilter({ pattern: '^(a+)+$|(a|aa)*b|(.*)*x' })
    for (let i = 0; i < 1000; i++) assert.equal(matches(`${'a'.repeat(120)}!`), undefined)
  })
})
