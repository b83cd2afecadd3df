import assert from 'node:assert/strict'
import { checkEntryPath } from './entry-path.ts'

const refused: Record<string, string[]> = {
  'it is empty': [''],
  'it is absolute': ['/', '/etc/passwd', '//x'],
  'it contains NUL': ['a\0b', '\0'],
  'it contains a backslash': ['a\\b', '..\\x', 'C:\\x'],
  'it contains a line break': ['a\nb', 'x/\n30 path=../../y\n'],
  "it has the component '..'": ['..', '../x', 'a/../../x', 'a/..'],
  "it has the component '.'": ['.', './a', 'a/./b', 'a/.'],
  'it has an empty component': ['a//b', 'a/'],
  'it is not valid UTF-8': ['a\ud800', 'a\ufffdb'],
  'it leads into a Git folder': [
    '.git/config',
    '.git',
    'a/.GIT/x',
    '.Git/hooks/post-checkout',
    'git~1/config',
    'GIT~1',
  ].concat([
    '.git /config',
    '.git./config',
    '.git. . /x',
    '.git::$INDEX_ALLOCATION/config',
    '.g\u200cit/config',
    '.git\ufeff/config',
  ]),
  'it has more than 4096 bytes': ['abc/'.repeat(1024) + 'x', 'é'.repeat(2049)],
  'it has a component of more than 255 bytes': ['x'.repeat(256), `a/${'é'.repeat(128)}/b`],
  'it is more than 100 components deep': ['a/'.repeat(100) + 'b'],
}

const accepted = [
  'a',
  'a/b/c.yaml',
  '.gitignore',
  '.github/x',
  'git/config',
  '.git2/x',
  'git~2',
  '..a',
  'a..',
  '...',
  '-rf',
  ' ',
  '~',
].concat([
  'x'.repeat(255),
  'é'.repeat(127),
  'a/'.repeat(99) + 'b',
  'Icon\r',
  'größe/ß',
  'a:b',
  '.sourceignore',
  '日本語/ファイル',
])

describe('paths of entries', () => {
  for (const [flaw, paths] of Object.entries(refused)) {
    for (const path of paths) {
      it(`${JSON.stringify(path.slice(0, 40))} is refused: ${flaw}`, () => {
        assert.throws(
          () => checkEntryPath(path),
          (err: Error & { reason?: string }) => {
            assert.equal(err.reason, 'ArchiveOperationFailed')
            assert.ok(err.message.endsWith(`: ${flaw}`), err.message)
            assert.ok(err.message.length < 400 && !/\p{Cc}/u.test(err.message), err.message)
            return true
          },
        )
      })
    }
  }

  for (const path of accepted) {
    it(`${JSON.stringify(path.slice(0, 40))} is fine`, () => checkEntryPath(path))
  }
})
