import assert from 'node:assert/strict'
import { existsSync, mkdirSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Entry } from '../entry.ts'
import { archiveOf, linkEntry, listed } from './test-archive.ts'
import { entriesOf, makeRandom, makeTempFolder } from '../test-support.ts'

/** Files by path; links by path and target; what of the links is kept. */
interface Case {
  files?: string[]
  links: Record<string, string>
  kept: string[]
  ignore?: string
}

const cases: Record<string, Case> = {
  'a file beside it': { files: ['f'], links: { a: 'f' }, kept: ['a'] },
  'a folder': { files: ['d/f'], links: { a: 'd', b: 'd/', c: './d/.', e: 'd//' }, kept: ['a', 'b', 'c', 'e'] },
  'a file elsewhere': { files: ['d/e/f', 'g'], links: { 'd/a': 'e/f', 'd/e/b': '../../g' }, kept: ['d/a', 'd/e/b'] },
  'the top': { files: ['d/f'], links: { 'd/a': '..', b: '.', c: 'd/..' }, kept: ['b', 'c', 'd/a'] },
  nothing: { files: ['f'], links: { a: 'x', b: 'f/x', c: 'x/../f' }, kept: [] },
  'a file as if it were a folder': { files: ['f'], links: { a: 'f/', b: 'f/.', c: 'f/../f' }, kept: [] },
  outside: { files: ['d/f'], links: { a: '..', 'd/b': '../..', c: '../f', 'd/e': '../../x/d/f' }, kept: [] },
  'an absolute path': { files: ['f'], links: { a: '/f', b: '//f', c: '/' }, kept: [] },
  'a name no path may have': { files: ['f'], links: { a: 'f\\', b: 'f\0', c: 'f\n', d: '' }, kept: [] },
  'another link': { files: ['f'], links: { a: 'b', b: 'c', c: 'f' }, kept: ['a', 'b', 'c'] },
  'a file through links to folders': {
    files: ['d/e/f', 'g'],
    links: { l: 'd', m: 'l/e', n: 'm/f', o: 'm/../../g', p: 'l/../g' },
    kept: ['l', 'm', 'n', 'o', 'p'],
  },
  'outside through a link': { files: ['d/e/f'], links: { 'd/l': 'e', m: 'd/l/../../..' }, kept: ['d/l'] },
  itself: { links: { a: 'a', b: './b', c: 'c/c' }, kept: [] },
  'a ring': { files: ['f'], links: { a: 'b', b: 'c', c: 'a', d: 'f' }, kept: ['d'] },
  'a link that is dropped': { files: ['f'], links: { a: 'b', b: 'c', c: '/x', d: 'a/../f' }, kept: [] },
  'what is ignored': {
    files: ['f.md', 'g'],
    links: { a: 'f.md', b: 'g', c: 'b.md', 'b.md': 'g' },
    kept: ['b'],
    ignore: '*.md',
  },
  'a folder with nothing in it but ignored files': { files: ['d/f.md'], links: { a: 'd' }, kept: [], ignore: '*.md' },
  'a folder with nothing in it but a link that is kept': {
    files: ['f'],
    links: { 'd/a': '../f', b: 'd' },
    kept: ['b', 'd/a'],
  },
  'a folder with nothing in it but a link that is dropped': {
    files: ['f'],
    links: { 'd/a': '/x', 'e/b': '../d', 'g/c': '../e', h: 'g' },
    kept: [],
  },
  'folders that are there for one another': { links: { 'd/a': '../e', 'e/b': '../d' }, kept: ['d/a', 'e/b'] },
}

async function linksOf(entries: Entry[], ignore?: string): Promise<{ kept: Record<string, string>; dropped: number }> {
  const notEmpty = entriesOf({ zzz: '' }) // node-tar takes an empty archive for none
  const options = { symlinks: 'keep', ignore: ignore ?? '# nothing' } as const
  const { bytes, result } = await archiveOf([...entries, ...notEmpty], options)
  const links = (await listed(bytes)).filter(({ type }) => type === 'SymbolicLink')
  return {
    kept: Object.fromEntries(links.map(({ path, linkpath = '' }) => [path, linkpath])),
    dropped: result.droppedSymlinks,
  }
}

/** A file, or a link with a target, and the folders above it. */
function makeAt(top: string, path: string, target?: string): void {
  mkdirSync(dirname(join(top, path)), { recursive: true })
  if (target === undefined) writeFileSync(join(top, path), '')
  else symlinkSync(target, join(top, path))
}

/** Whether the kernel finds something below `top` at the end of a link. */
function leadsInside(top: string, path: string): boolean {
  try {
    return `${realpathSync.native(join(top, path))}/`.startsWith(`${realpathSync.native(top)}/`)
  } catch {
    return false // it leads nowhere
  }
}

describe('symbolic links', function () {
  this.timeout(60_000)

  for (const [what, { files = [], links, kept, ignore }] of Object.entries(cases)) {
    it(`to ${what}: ${kept.length} of ${Object.keys(links).length} are kept`, async () => {
      const entries = [
        ...entriesOf(Object.fromEntries(files.map((path) => [path, 'x']))),
        ...Object.entries(links).map(([path, target]) => linkEntry(path, target)),
      ]
      const expected = Object.fromEntries(kept.map((path) => [path, links[path]!]))
      const ignored = Object.keys(links).filter((path) => path.endsWith('.md')).length
      const found = await linksOf(entries, ignore)
      assert.deepEqual(found, { kept: expected, dropped: Object.keys(links).length - ignored - kept.length })
      assert.deepEqual(await linksOf(entries.toReversed(), ignore), found, 'whatever the order')
    })
  }

  it('are left out and counted unless they are to be kept, and never read then', async () => {
    const link = { ...linkEntry('a', 'f'), open: () => assert.fail('opened') }
    const { bytes, result } = await archiveOf([...entriesOf({ f: 'x' }), link])
    assert.deepEqual(
      (await listed(bytes)).map(({ path }) => path),
      ['f'],
    )
    assert.deepEqual([result.files, result.droppedSymlinks, result.ignored], [1, 1, 0])
  })

  it('are kept with mode 0777, no content, and targets of any length', async () => {
    const deep = `${'d'.repeat(200)}/${'é'.repeat(100)}`
    const roundabout = './'.repeat(2000) + 'f'
    const links = { a: 'f', b: deep, c: roundabout, [`${'n'.repeat(150)}`]: 'f' }
    const entries = [
      ...entriesOf({ f: 'x', [deep]: 'y' }),
      ...Object.entries(links).map(([path, target]) => linkEntry(path, target)),
    ]
    assert.deepEqual(await linksOf(entries), { kept: links, dropped: 0 })
    const [first] = (await listed((await archiveOf(entries, { symlinks: 'keep' })).bytes)).filter(
      ({ path }) => path === 'a',
    )
    assert.deepEqual([first?.type, first?.mode, first?.size], ['SymbolicLink', 0o777, 0])
  })

  it('are followed forty times, as the kernel does', async () => {
    const chain = Array.from({ length: 45 }, (_, i) => linkEntry(`l${i}`, i === 0 ? 'f' : `l${i - 1}`))
    const { kept, dropped } = await linksOf([...entriesOf({ f: 'x' }), ...chain])
    assert.deepEqual([Object.keys(kept).length, dropped], [40, 5])
    assert.equal(kept['l40'], undefined)
  })

  it('with a target of more than 4096 bytes, or one that is no text, are dropped', async () => {
    const entries = [linkEntry('a', './'.repeat(2048) + 'f'), linkEntry('b', Buffer.of(0xff, 0xfe))]
    assert.deepEqual(await linksOf([...entriesOf({ f: 'x' }), ...entries]), { kept: {}, dropped: 2 })
  })

  it('cannot be folders', async () => {
    for (const symlinks of ['keep', 'drop'] as const) {
      const entries = [...entriesOf({ 'a/b': 'x', 'd/f': '' }), linkEntry('a', 'd')]
      await assert.rejects(archiveOf(entries, { symlinks }), { message: '"a" is both a file and a folder' })
    }
  })

  it('named .sourceignore are no rules', async () => {
    const entries = [...entriesOf({ rules: '*', f: 'x' }), linkEntry('.sourceignore', 'rules')]
    assert.deepEqual(await linksOf(entries), { kept: { '.sourceignore': 'rules' }, dropped: 0 })
  })

  it('end the archive where they take too long to follow', async () => {
    const winding = Array.from({ length: 2000 }, (_, i) =>
      linkEntry(`l${i}`, `${'d/../'.repeat(500)}l${(i + 1) % 2000}`),
    )
    await assert.rejects(linksOf([...entriesOf({ 'd/f': 'x' }), ...winding]), {
      reason: 'ArchiveOperationFailed',
      message: 'the symbolic links take more than 10000000 steps to follow',
    })
  })

  it('that are kept always end in the archive, whatever they are', async () => {
    const seed = Date.now() % 2 ** 32
    const random = makeRandom(seed)
    await using temp = await makeTempFolder()
    const name = (): string => ['..', '.', 'a', 'b', 'c', ''][random(6)]!
    for (let round = 0; round < 300; round++) {
      const entries = new Map<string, Entry>()
      const targets = new Map<string, string>()
      for (let i = 0; i < 12; i++) {
        const path = Array.from({ length: 1 + random(3) }, () => 'abc'[random(3)]!).join('/')
        const clashes = [...entries.keys()].some(
          (other) => `${other}/`.startsWith(`${path}/`) || `${path}/`.startsWith(`${other}/`),
        )
        if (clashes) continue
        if (random(3)) targets.set(path, Array.from({ length: 1 + random(4) }, name).join('/'))
        const target = targets.get(path)
        entries.set(path, target === undefined ? entriesOf({ [path]: 'x' })[0]! : linkEntry(path, target))
      }
      const { kept } = await linksOf([...entries.values()])
      const top = join(temp.path, String(round), 'top')
      for (const { path, type } of entries.values()) if (type === undefined) makeAt(top, path)
      for (const [path, target] of Object.entries(kept)) makeAt(top, path, target)
      for (const path of Object.keys(kept)) assert.ok(leadsInside(top, path), `seed ${seed}, round ${round}: ${path}`)
      for (const { path } of entries.values()) {
        const target = targets.get(path)
        if (!target || path in kept || !existsSync(dirname(join(top, path)))) continue
        makeAt(top, path, target)
        assert.ok(!leadsInside(top, path), `seed ${seed}, round ${round}: ${path} could be kept`)
        rmSync(join(top, path))
      }
    }
  })
})
