import assert from 'node:assert/strict'
import { pathFlaw, readGitmodules, submoduleUrl } from './gitmodules.ts'

describe('the address of a submodule', () => {
  const good: [string, string, string][] = [
    ['https://h/a/b.git', 'https://x/y', 'https://h/a/b.git'],
    ['../lib.git', 'https://h:8443/org/app.git', 'https://h:8443/org/lib.git'],
    ['./lib', 'https://h/org/app.git', 'https://h/org/app.git/lib'],
    ['../../other/./lib/', 'https://h/org/app', 'https://h/other/lib'],
    ['../lib', 'ssh://git@h:2222/org/app', 'ssh://git@h:2222/org/lib'],
    ['git@h.example:org/lib.git', 'ssh://git@h.example/org/app', 'ssh://git@h.example/org/lib.git'],
    ['https://me:secret@h/lib', 'https://h/app', 'https://h/lib'],
  ]
  for (const [text, parent, url] of good) {
    it(`${text} in ${parent} is ${url}`, () => assert.equal(submoduleUrl(text, parent), url))
  }

  const bad: [string, RegExp][] = [
    ['file:///etc', /must start with/],
    ['/srv/lib', /must start with/],
    ['lib', /must start with/],
    ['ext::sh -c touch x', /white space/],
    ['--upload-pack=x', /must not start with '-'/],
    ['git://h/lib', /must start with/],
    ['../../../x', /leads above the host/],
    ['https://h/lib?x', /query/],
    ['http://169.254.169.254/latest', /link-local/],
    ['http://2852039166/latest', /link-local/],
    ['https://[fe80::1]/x', /link-local/],
    ['https://h/l\rib', /control character/],
    ['-oProxyCommand=x@h:lib', /must not start with '-'/],
  ]
  for (const [text, why] of bad) {
    it(`is not ${JSON.stringify(text)}`, () => {
      assert.throws(() => submoduleUrl(text, 'https://h/org/app'), why)
    })
  }

  it('is read by git itself, with what is quoted in it; two claims to a folder are none', async () => {
    const text = `[submodule "a.b"]\n path = "libs/\\ta"\n url = ../a ; why\n[include]\n path = /etc/passwd\n
      [submodule "x"]\n path = x\n url = u1\n[submodule "y"]\n path = x\n url = u2\n[submodule "z"]\n path = z\n`
    const options = {
      env: { PATH: process.env['PATH']!, GIT_CONFIG_NOSYSTEM: '1' },
      signal: AbortSignal.timeout(10_000),
    }
    const urls = await readGitmodules(Buffer.from(text), options)
    assert.deepEqual(Object.fromEntries(urls), { 'libs/\ta': '../a', x: undefined, z: undefined })
    await assert.rejects(readGitmodules(Buffer.from('[nonsense'), options), /bad config/)
  })

  it('is not that of a folder whose name could be something else', () => {
    for (const path of ['a\r', '-a', '../a', 'a/../b', 'a//b', '/a', 'a\0', 'a\ud800']) assert.ok(pathFlaw(path), path)
    for (const path of ['a', 'a/b', '.a', 'a b', 'ü/-']) assert.equal(pathFlaw(path), undefined)
  })
})
