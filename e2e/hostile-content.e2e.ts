import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { GitRepositorySpec } from '../controllers/git/types.ts'
import { getCondition } from '../controllers/runtime/conditions.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import { addBystander } from './bystander.ts'
import type { ControllerProcess } from './controller-process.ts'
import type { RawEntry, Repository } from './git-repository.ts'
import { assertServes, Story } from './story.ts'

const run = promisify(execFile)

describe('hostile content', () => {
  let story: Story
  let controller: ControllerProcess
  let stillServed: () => Promise<void>

  before(async () => {
    story = await Story.open()
    const flags = ['--concurrent=4', '--artifact-max-entries=20000', '--artifact-max-file-size=4Mi']
    controller = await story.startController({ flags })
    stillServed = await addBystander(story)
  })
  after(() => story.close())

  /** Whatever a commit holds: the others are served as before. */
  afterEach(() => stillServed())

  const apply = (name: string, spec: Partial<GitRepositorySpec> = {}) =>
    story.apply(name, { url: `${story.git.url}/${name}.git`, ...spec })

  /** Fails with this message, which the next commit may mend; nothing is stored. */
  async function fails(name: string, message: RegExp, reason: RegExp = /^GitOperationFailed$/): Promise<void> {
    const object = await story.failed(name, message)
    const ready = getCondition(object, 'Ready')!
    assert.match(ready.reason, reason)
    assert.doesNotMatch(ready.message, /\p{Cc}/u)
    assert.equal(getCondition(object, 'Stalled'), undefined)
    assert.equal(object.status?.artifact, undefined)
  }

  /** The paths in the archive of an object that is Ready. */
  async function pathsOf(name: string): Promise<string[]> {
    const { artifact } = (await story.ready(name)).status
    const file = join(story.folder, `${name}.tar.gz`)
    await writeFile(file, await assertServes(artifact))
    return (await run('tar', ['-tzf', file, '--quoting-style=literal'])).stdout.trim().split('\n')
  }

  /** Nests a tree `depth` times in itself, `width` times each; gives its id. */
  async function nested(repository: Repository, depth: number, width: number): Promise<string> {
    let oid = (await repository.git(['hash-object', '-w', '--stdin'], 'x')).trim()
    for (let level = 0; level < depth; level++) {
      const mode = level === 0 ? '100644 blob' : '040000 tree'
      const rows = Array.from({ length: width }, (_, i) => `${mode} ${oid}\t${i}\n`)
      oid = (await repository.git(['mktree'], rows.join(''))).trim()
    }
    return oid
  }

  it('of links is left out with a Warning that counts them, and never followed', async () => {
    const repository = await story.repository('links.git')
    const links = { passwd: '/etc/passwd', up: '../../x', a: 'b', b: 'a', etc: '/etc', self: '.' }
    const changes = Object.entries(links).map(([path, symlink]) => [path, { symlink }] as const)
    await repository.commit({ 'app.yaml': 'a: 1\n', ...Object.fromEntries(changes) }, 'links')
    for (const symlinks of ['Drop', 'Keep'] as const) {
      const name = `links-${symlinks.toLowerCase()}`
      await apply(name, { url: `${story.git.url}/links.git`, symlinks })
      assert.deepEqual(await pathsOf(name), symlinks === 'Keep' ? ['app.yaml', 'self'] : ['app.yaml'])
      const [event] = await eventually(async () => {
        const events = await story.events(name, 'SymlinksDropped')
        return events.length > 0 && events
      })
      assert.equal(event!.type, 'Warning')
      assert.match(event!.message!, symlinks === 'Keep' ? /^left 5 symbolic links/ : /^left 6 symbolic links/)
    }
  })

  const trees: [string, (RawEntry & { mode: '100644' | '120000' | '40000' })[]][] = [
    ['a short name of .git', [{ mode: '100644', name: 'git~1', content: 'evil' }]],
    ['.git with a dot behind it', [{ mode: '100644', name: '.git.', content: 'evil' }]],
    ['.git as a stream', [{ mode: '100644', name: '.git::$INDEX_ALLOCATION', content: 'evil' }]],
    ['.git with what nobody sees', [{ mode: '100644', name: '.g\u200cit', content: 'evil' }]],
    ['an absolute path', [{ mode: '100644', name: '/etc/passwd', content: 'evil' }]],
    ['a backslash', [{ mode: '100644', name: '..\\x', content: 'evil' }]],
    ['a path of 5,000 characters', [{ mode: '100644', name: 'x'.repeat(5_000), content: 'evil' }]],
    [
      'a file through a link',
      [
        { mode: '120000', name: 'etc', content: '/etc' },
        { mode: '100644', name: 'etc/passwd', content: 'evil' },
      ],
    ],
  ]
  for (const [i, [what, entries]] of trees.entries()) {
    it(`with ${what} is refused, also in a submodule`, async () => {
      const repository = await story.repository(`tree-${i}.git`)
      const sha = await repository.rawTree([{ mode: '100644', name: 'a', content: 'a' }, ...entries], 'hostile')
      await apply(`tree-${i}`)
      const parent = await story.repository(`parent-${i}.git`)
      const gitmodules = `[submodule "s"]\n path = s\n url = ../tree-${i}.git\n`
      await parent.commit({ s: { submodule: sha }, '.gitmodules': gitmodules }, 'parent')
      await apply(`parent-${i}`, { recurseSubmodules: true })
      for (const name of [`tree-${i}`, `parent-${i}`])
        await fails(name, /./, /^(?:GitOperationFailed|ArchiveOperationFailed)$/)
    })
  }

  it('whose names differ only in case or Unicode form is kept byte by byte', async () => {
    const names = ['A', 'a', 'e\u0301', 'ss', '\u00df', '\u00e9']
    const repository = await story.repository('names.git')
    await repository.commit(Object.fromEntries(names.map((name) => [name, name])), 'names')
    await apply('names')
    assert.deepEqual(await pathsOf('names'), names)
  })

  it('of ten billion files, or of very many, is refused within little memory', async () => {
    for (const [name, depth, width] of [
      ['bomb', 10, 10],
      ['many', 3, 28],
    ] as const) {
      const repository = await story.repository(`${name}.git`)
      const entry = { mode: '40000', name: 'x', oid: await nested(repository, depth, width) }
      await repository.rawTree([entry], name)
      await apply(name)
      await fails(name, /more than 20000 files \(--artifact-max-entries\)$/, /^TooManyFiles$/)
    }
    const [, peakKb] = /^VmHWM:\s*(\d+) kB$/m.exec(await readFile(`/proc/${controller.process.pid}/status`, 'utf8'))!
    assert.ok(Number(peakKb) < 400_000, `${peakKb} kB`)
  })

  it('of two thousand folders within each other is refused', async () => {
    const repository = await story.repository('deep.git')
    await repository.commit({ [`${'a/'.repeat(2_000)}x`]: 'x' }, 'deep')
    await apply('deep')
    await fails('deep', /more than 100 components deep/, /^ArchiveOperationFailed$/)
  })

  it('that is one large file is refused, and the limit named', async () => {
    const repository = await story.repository('large.git')
    await repository.commit({ 'zero.bin': Buffer.alloc(8_000_000) }, 'large')
    await apply('large')
    await fails('large', /--artifact-max-file-size/, /^ArchiveOperationFailed$/)
  })

  const modules: [string, { path?: string; url: string; name?: string }, RegExp][] = [
    ['a local URL', { url: 'file:///etc' }, /must start with http/],
    ['a program for a URL', { url: 'ext::sh -c touch% /tmp/x' }, /white space|gitmodulesUrl|disallowed/],
    ['an option for a URL', { url: '--upload-pack=touch /tmp/x' }, /gitmodulesUrl|must not start with '-'/],
    ['an option for a path', { path: '-c', url: '../bystander.git' }, /gitmodulesPath|starts with '-'/],
    ['a carriage return at the end of its path', { path: 's\r', url: '../bystander.git' }, /control character/],
    ['a name above its folder', { name: '../../x', url: '../bystander.git' }, /gitmodulesName|disallowed/],
    ['a link-local address', { url: 'http://169.254.169.254/latest' }, /link-local/],
  ]
  for (const [i, [what, { path = 's', url, name = 's' }, message]] of modules.entries()) {
    it(`with a submodule that has ${what} is refused`, async () => {
      const repository = await story.repository(`module-${i}.git`)
      const gitmodules = `[submodule "${name}"]\n path = "${path}"\n url = "${url}"\n`
      const changes = { [path]: { submodule: '1'.repeat(40) }, '.gitmodules': gitmodules, 'app.yaml': 'a: 1\n' }
      await repository.commit(changes, 'hostile')
      await apply(`module-${i}`, { recurseSubmodules: true })
      await fails(`module-${i}`, message)
    })
  }

  it('with hostile submodules does no harm where nobody wants them', async () => {
    await apply('unwanted', { url: `${story.git.url}/module-0.git` })
    assert.deepEqual(await pathsOf('unwanted'), ['app.yaml'])
  })
})
