import assert from 'node:assert/strict'
import { makeRandom } from '../artifact/test-support.ts'
import { StalledError } from '../runtime/errors.ts'
import { revisionOf, wantedBy } from './refs.ts'
import type { GitRepositoryRef } from './types.ts'

const sha = '0123456789abcdef0123456789abcdef01234567'

describe('what spec.ref asks for', () => {
  const table: [GitRepositoryRef | undefined, object][] = [
    [undefined, { by: 'ref', ref: 'refs/heads/master', pointer: 'master' }],
    [{}, { by: 'ref', ref: 'refs/heads/master', pointer: 'master' }],
    [{ defaultBranch: true }, { by: 'head' }],
    [{ defaultBranch: false }, { by: 'ref', ref: 'refs/heads/master', pointer: 'master' }],
    [
      { defaultBranch: true, branch: 'b' },
      { by: 'ref', ref: 'refs/heads/b', pointer: 'b' },
    ],
    [{ branch: 'feat/x' }, { by: 'ref', ref: 'refs/heads/feat/x', pointer: 'feat/x' }],
    [
      { branch: 'b', tag: 'v1' },
      { by: 'ref', ref: 'refs/tags/v1', pointer: 'v1' },
    ],
    [
      { semver: '*', tag: 'v1' },
      { by: 'ref', ref: 'refs/tags/v1', pointer: 'v1' },
    ],
    [
      { tag: 'v1', name: 'refs/pull/1/head' },
      { by: 'ref', ref: 'refs/pull/1/head', pointer: 'refs/pull/1/head' },
    ],
    [{ name: 'refs/tags/v1^{}' }, { by: 'ref', ref: 'refs/tags/v1', pointer: 'refs/tags/v1^{}' }],
    [{ name: 'HEAD' }, { by: 'ref', ref: 'HEAD', pointer: 'HEAD' }],
    [
      { commit: sha.toUpperCase(), tag: 'v1' },
      { by: 'commit', sha },
    ],
    [
      { commit: sha, branch: 'b' },
      { by: 'commit', sha, ref: 'refs/heads/b', pointer: 'b' },
    ],
    [
      { commit: sha, name: 'refs/x/y', branch: 'b' },
      { by: 'commit', sha, ref: 'refs/x/y', pointer: 'refs/x/y' },
    ],
  ]
  for (const [spec, wanted] of table) {
    it(`is for ${JSON.stringify(spec)} ${JSON.stringify(wanted)}`, () => assert.deepEqual(wantedBy(spec), wanted))
  }

  it('is for a branch and a semver the semver', () => {
    assert.equal(wantedBy({ branch: 'b', semver: '1.x' }).by, 'semver')
  })

  const hostile: [GitRepositoryRef, RegExp][] = [
    [{ branch: '--exec=x' }, /invalid spec\.ref\.branch "--exec=x": must not start with '-'/],
    [{ tag: '-x' }, /spec\.ref\.tag/],
    [{ name: '-x' }, /spec\.ref\.name/],
    [{ name: '../../x' }, /'\.\.'/],
    [{ name: 'main' }, /must start with 'refs\/'/],
    [{ name: 'refs/' }, /ends with/],
    [{ name: 'refs/heads/../x' }, /'\.\.'/],
    [{ branch: 'a..b' }, /'\.\.'/],
    [{ branch: '@{-1}' }, /'@\{'/],
    [{ branch: '@' }, /'@'/],
    [{ branch: 'a\nb' }, /control character/],
    [{ branch: 'a\u007fb' }, /control character/],
    [{ branch: 'a b' }, /space/],
    [{ branch: 'a:b' }, /space ~/],
    [{ branch: 'a~1' }, /space ~/],
    [{ branch: 'a^' }, /space ~/],
    [{ branch: 'a*' }, /space ~/],
    [{ branch: 'a\\b' }, /space ~/],
    [{ branch: '/a' }, /starts or ends/],
    [{ branch: 'a//b' }, /starts or ends/],
    [{ branch: '.a' }, /component/],
    [{ branch: 'a.lock' }, /component/],
    [{ branch: 'a.' }, /end with/],
    [{ branch: 'x'.repeat(10_000) }, /longer than 1024/],
    [{ tag: 'v1^{}' }, /space ~/],
    [{ semver: 'latest' }, /spec\.ref\.semver "latest": semver parse error/],
    [{ commit: '--exec=x' }, /40 hexadecimal digits/],
    [{ commit: sha.slice(0, 7) }, /abbreviated/],
    [{ commit: sha + sha.slice(0, 24) }, /SHA-256/],
    [{ commit: `${sha}\n` }, /40 hexadecimal/],
  ]
  for (const [spec, why] of hostile) {
    it(`stalls on ${JSON.stringify(spec).slice(0, 60)}`, () => {
      assert.throws(
        () => wantedBy(spec),
        (err) => {
          assert.ok(err instanceof StalledError, String(err))
          assert.match(err.message, why)
          assert.ok(err.message.length < 300)
          assert.doesNotMatch(err.message, /\p{Cc}/u)
          return true
        },
      )
    })
  }
})

describe('the choice of a tag by its version', () => {
  it('is made or refused for whatever a spec and a server say, without delay', () => {
    const seed = Date.now() % 2 ** 32
    console.log(`        seed ${seed}`)
    const random = makeRandom(seed)
    const textOf = (words: readonly string[], most: number) =>
      Array.from({ length: random(most) }, () => words[random(words.length)]).join('')
    const ranges = ['>=', '<', '1', '.', '2', '0', ' ', ',', '||', 'x', '^', '~', '-', 'rc', '*']
    const patterns = ['^', '$', '(', ')', '.*', 'app', '-', '+', '[a', ']', '?', '\\d', '|', '(?P<v>', '{9}', '\\pL']
    const tags = ['v', '1', '2', '0', '.', '-', '+', 'rc', 'app', '9'.repeat(30), '\u00e9', '\0', '/']
    let chosen = 0
    for (let i = 0; i < 20_000; i++) {
      const tagFilter = {
        pattern: textOf(patterns, 12),
        ...(random(2) && { extract: textOf(['$', '1', '{', '}', 'v'], 6) }),
      }
      const semver = random(2) ? '*' : textOf(ranges, 8)
      try {
        const wanted = wantedBy({ semver: semver || '*', ...(random(2) && { tagFilter }) })
        assert.equal(wanted.by, 'semver')
        for (let t = 0; t < 3; t++)
          if (wanted.by === 'semver' && wanted.versionOf(random(2) ? '1.2.0' : textOf(tags, 12))) chosen++
      } catch (err) {
        assert.ok(err instanceof StalledError, `${semver} ${JSON.stringify(tagFilter)}: ${String(err)}`)
      }
    }
    assert.ok(chosen > 100, `${chosen} versions: the inputs show nothing`)
  })
})

describe('a revision', () => {
  it('names the pointer, where there is one', () => {
    assert.equal(revisionOf(sha, 'main'), `main@sha1:${sha}`)
    assert.equal(revisionOf(sha), `sha1:${sha}`)
  })
})
