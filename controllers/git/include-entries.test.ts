import assert from 'node:assert/strict'
import { join } from 'node:path'
import { artifactOf } from '../../consumer-sdk/test-support.ts'
import { defaultArchiveLimits } from '../artifact/archive/archive-plan.ts'
import type { Entry } from '../artifact/entry.ts'
import { folder, makeStorage, type StorageFixture } from '../artifact/storage/test-storage.ts'
import { Temps } from '../artifact/storage/temps.ts'
import { entriesOf } from '../artifact/test-support.ts'
import { StalledError } from '../runtime/errors.ts'
import { openArtifactFiles } from '../source/artifact-files.ts'
import type { OpenedEntries, SourceContext } from '../source/source.ts'
import { addIncludes } from './include-entries.ts'
import { resolveIncludes, type Include } from './includes.ts'
import { contextOf, failureOf, objectOf, readAll } from './test-support.ts'

describe('the entries of an object with includes', () => {
  let f: StorageFixture
  let opened: OpenedEntries[]
  let closed: number
  let ctx: SourceContext

  beforeEach(async () => {
    f = await makeStorage()
    opened = []
    closed = 0
    const temps = new Temps(join(f.root, 'tmp'))
    const pathOf = (url: string) => url.replace('http://own.example/', '')
    const options = { storage: f.storage, pathOf, limits: defaultArchiveLimits, temps }
    ctx = contextOf()
    ctx.artifacts.open = async (artifact) => {
      const files = await openArtifactFiles(artifact, options, ctx.signal)
      opened.push(files)
      return { ...files, close: () => files.close().finally(() => closed++) }
    }
  })
  afterEach(() => f[Symbol.asyncDispose]())

  /** An include of what another object has stored. */
  async function include(files: Record<string, string>, fromPath: string, toPath: string): Promise<Include> {
    const name = `lib-${Object.keys(files).length}`
    const { artifact } = await f.storage.store(`gitrepository/team-a/${name}`, 'r', entriesOf(files), {
      fileName: name,
    })
    const spec = { url: `http://own.example/${artifact.path}`, digest: artifact.digest }
    return { name, fromPath, toPath, artifact: artifactOf(name, [], spec) }
  }
  async function merged(own: Record<string, string>, ...includes: Include[]): Promise<Record<string, string>> {
    const { entries, close } = addIncludes(entriesOf(own), includes, ctx)
    try {
      return await readAll(entries)
    } finally {
      await close()
    }
  }

  const lib = { README: 'r', 'deploy/a.yaml': 'a', 'deploy/sub/b.yaml': 'b', 'deployment/c.yaml': 'c' }

  for (const [what, fromPath, toPath, expected] of [
    ['all of it', '', 'lib', Object.fromEntries(Object.entries(lib).map(([path, text]) => [`lib/${path}`, text]))],
    ['a folder, by whole names', 'deploy', 'x/y', { 'x/y/a.yaml': 'a', 'x/y/sub/b.yaml': 'b' }],
    ['a folder to the top', 'deploy/sub', '', { 'b.yaml': 'b' }],
    ['a single file', 'deploy/a.yaml', 'x.yaml', { 'x.yaml': 'a' }],
    ['what goes beside own files', 'deploy', 'own', { 'own/a.yaml': 'a', 'own/sub/b.yaml': 'b' }],
  ] as const) {
    it(`have ${what} of the other artifact`, async () => {
      assert.deepEqual(await merged({ 'own/x': 'x' }, await include(lib, fromPath, toPath)), {
        'own/x': 'x',
        ...expected,
      })
      assert.equal(closed, 1)
    })
  }

  it('keep the executable bit, and are named by the content they came from', async () => {
    const part = await include({ 'run.sh': 'x', plain: 'y' }, '', 'lib')
    const { entries, close } = addIncludes([], [part], ctx)
    const found: Entry[] = []
    for await (const entry of entries) found.push(entry)
    await close()
    const { digest } = part.artifact.spec!
    assert.deepEqual(
      found.map(({ path, mode, contentId }) => [path, mode, contentId]),
      [
        ['lib/plain', 0o600, `artifact:${digest}:plain`],
        ['lib/run.sh', 0o700, `artifact:${digest}:run.sh`],
      ],
    )
  })

  it('are archived like any others', async () => {
    const { entries, close } = addIncludes(entriesOf({ own: 'x' }), [await include(lib, 'deploy', 'lib')], ctx)
    const { artifact } = await f.storage.store(folder, 'r', entries, { fileName: 'x' })
    await close()
    const files = await ctx.artifacts.open(
      artifactOf('x', [], { url: `http://own.example/${artifact.path}`, digest: artifact.digest }),
    )
    assert.deepEqual(await readAll(files.entries), { own: 'x', 'lib/a.yaml': 'a', 'lib/sub/b.yaml': 'b' })
    await files.close()
  })

  it('read an artifact once, and none before the first entry is asked for', async () => {
    const part = await include(lib, 'deploy', 'one')
    const twice = [part, { ...part, toPath: 'two' }]
    await addIncludes([], twice, ctx).close()
    assert.deepEqual([opened.length, closed], [0, 0])
    assert.equal(Object.keys(await merged({}, ...twice)).length, 4)
    assert.deepEqual([opened.length, closed], [1, 1])
  })

  for (const [what, own, fromPath, toPath, why] of [
    ['a folder that is missing', {}, 'nowhere', 'lib', 'from nowhere to lib: no such file or directory: "nowhere"'],
    ['half a name', {}, 'deplo', 'lib', 'from deplo to lib: no such file or directory: "deplo"'],
    ['a file of their own', { 'lib/a.yaml': '' }, 'deploy', 'lib', 'from deploy to lib: "lib/a.yaml" is there already'],
    ['a file where a folder goes', { lib: '' }, 'deploy', 'lib', 'from deploy to lib: "lib" is there already'],
    ['a file above', { x: '' }, 'deploy', 'x/y', 'from deploy to x/y: "x" is there already'],
    ['a folder where a file goes', { 'lib/README/x': '' }, '', 'lib', 'from . to lib: "lib/README" is there already'],
    ['a file in place of everything', {}, 'README', '', 'from README to .: "README" is a file'],
  ] as const) {
    it(`are refused with ${what}`, async () => {
      const err = await failureOf(merged(own, await include(lib, fromPath, toPath)))
      assert.deepEqual(
        [err.reason, err.condition, err.message],
        ['CopyFailure', 'StorageOperationFailed', `failed to copy 'lib-4' include ${why}`],
      )
      assert.equal(closed, opened.length)
    })
  }

  it('are refused with a link of their own where a folder goes, which no archive could hold beside it', async () => {
    const [link] = entriesOf({ lib: 'elsewhere' })
    const { entries, close } = addIncludes([{ ...link!, type: 'symlink' }], [await include(lib, 'deploy', 'lib')], ctx)
    const err = await failureOf(readAll(entries))
    await close()
    assert.match(err.message, /^failed to copy 'lib-4' include from deploy to lib: "lib" is there already/)
  })

  it('are refused where two includes meet', async () => {
    const err = await failureOf(merged({}, await include(lib, '', 'lib'), await include({ README: '' }, '', 'lib')))
    assert.match(err.message, /"lib\/README" is there already/)
  })

  it('are no more than a hundred, whatever they include', async () => {
    const many = Array.from({ length: 101 }, (_, i) => ({ repository: { name: 'lib' }, toPath: `${i}` }))
    const err = await failureOf(resolveIncludes(objectOf({ url: 'https://x/y', include: many }), contextOf()))
    assert.ok(err instanceof StalledError)
    assert.equal(err.message, 'spec.include has 101 entries, at most 100 are allowed')
  })

  it('say which include cannot be read', async () => {
    const part = await include(lib, '', 'lib')
    part.artifact.spec!.url = 'http://127.0.0.1:1/x.tar.gz'
    const err = await failureOf(merged({}, part))
    assert.match(err.message, /^failed to copy 'lib-4' include from \. to lib: failed to download artifact/)
  })
})
