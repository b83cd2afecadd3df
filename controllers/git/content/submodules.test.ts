import assert from 'node:assert/strict'
import { mkdir, readdir, rename, rm } from 'node:fs/promises'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { startGitServer, type GitServer, type Repository } from '../../../e2e/git-server.ts'
import type { Entry } from '../../artifact/entry.ts'
import { accessFromSecret, anonymous, type Access } from '../access/access.ts'
import type { Mirrors } from '../mirror/mirrors.ts'
import { failureOf, openStage, readAll, type Stage } from '../test-support.ts'
import { openContent, type Content } from './content.ts'
import { defaultListingLimits } from './listing.ts'

describe('submodules', function () {
  this.timeout(120_000)
  let stage: Stage
  let other: GitServer
  let app: Repository
  let lib: Repository
  let deep: Repository
  let foreign: Repository
  let ids: { app: string; lib: string; deep: string; foreign: string }
  let cache = 0
  let signal: AbortSignal

  beforeEach(() => {
    signal = AbortSignal.timeout(120_000)
  })

  const named = (modules: Record<string, string>) =>
    Object.entries(modules)
      .map(([path, url]) => `[submodule "${path}"]\n\tpath = ${path}\n\turl = ${url}\n`)
      .join('')

  before(async () => {
    stage = await openStage()
    other = await startGitServer()
    app = await stage.server.repository('app.git')
    lib = await stage.server.repository('lib.git')
    deep = await stage.server.repository('deep.git')
    foreign = await other.repository('foreign.git')
    const deepest = await deep.commit({ 'deep.txt': 'deep' }, 'deep')
    await deep.commit({ 'deep.txt': 'newer' }, 'newer')
    const foreignSha = await foreign.commit({ 'foreign.txt': 'foreign', link: { symlink: 'foreign.txt' } }, 'foreign')
    const libChanges = {
      'lib.txt': 'lib',
      nested: { submodule: deepest },
      '.gitmodules': named({ nested: '../deep.git' }),
    }
    const libSha = await lib.commit(libChanges, 'lib')
    const appSha = await app.commit(
      {
        'a.txt': 'a',
        'libs/one': { submodule: libSha },
        'libs/b.txt': 'b',
        vendor: { submodule: foreignSha },
        '.gitmodules': named({ 'libs/one': '../lib.git', vendor: `${other.url}/foreign.git`, gone: '../gone.git' }),
      },
      'app',
    )
    ids = { app: appSha, lib: libSha, deep: deepest, foreign: foreignSha }
  })
  after(async () => {
    await other.stop()
    await stage.close()
  })
  beforeEach(() => {
    Object.assign(stage.server.behaviour, { auth: undefined, modern: true, protocolV2: true })
    Object.assign(other.behaviour, { auth: undefined })
    stage.server.reset()
    other.reset()
  })

  const fresh = () => stage.open({ cacheFolder: join(stage.folder, `cache-${cache++}`) })

  async function open({ mirrors = fresh(), sha = ids.app, access = anonymous, sparse, maxFiles = 1000 }: Wish = {}) {
    const mirror = mirrors.mirrorFor(`${stage.server.url}/app.git`, access)
    const limits = { ...defaultListingLimits, maxFiles }
    return await openContent({ mirror, sha, ref: 'refs/heads/main', sparse, submodules: mirrors, limits, signal })
  }

  const using = async <R>(content: Content, work: (content: Content) => Promise<R>) => {
    try {
      return await work(content)
    } finally {
      await content.close()
    }
  }

  const filesOf = async (wish: Wish = {}) => await using(await open(wish), ({ entries }) => readAll(entries))

  const all = {
    'a.txt': 'a',
    'libs/b.txt': 'b',
    'libs/one/lib.txt': 'lib',
    'libs/one/nested/deep.txt': 'deep',
    'vendor/foreign.txt': 'foreign',
    'vendor/link': 'foreign.txt',
  }
  const withoutGitmodules = (files: Record<string, string>) =>
    Object.fromEntries(Object.entries(files).filter(([path]) => !path.endsWith('.gitmodules')))

  it('come with their files, at exactly the commits that their parents name', async () => {
    assert.deepEqual(withoutGitmodules(await filesOf()), all)
    Object.assign(stage.server.behaviour, { modern: false, protocolV2: false })
    assert.deepEqual(withoutGitmodules(await filesOf()), all, 'from an old server, whose newest commits are others')
  })

  it('cost nothing more the next time', async () => {
    const { mirrors } = stage
    const { contentKey } = await using(await open({ mirrors }), async (content) => {
      await readAll(content.entries)
      return content
    })
    const processes = (await stage.processes()).length
    stage.server.reset()
    other.reset()
    const again = await open({ mirrors })
    await again.close()
    assert.equal(again.contentKey, contentKey)
    assert.equal((await stage.processes()).length, processes)
    assert.equal(stage.server.requests().requests + other.requests().requests, 0)
  })

  it('are left out unless they are wanted, and outside of a sparse checkout', async () => {
    const mirrors = fresh()
    const mirror = mirrors.mirrorFor(`${stage.server.url}/app.git`, anonymous)
    const plain = await openContent({ mirror, sha: ids.app, signal })
    assert.deepEqual(withoutGitmodules(await readAll(plain.entries)), { 'a.txt': 'a', 'libs/b.txt': 'b' })
    assert.equal(plain.leftOut, 2)
    await plain.close()
    assert.equal(other.requests().requests, 0)
    const sparse = await open({ sparse: ['libs'] })
    assert.notEqual(sparse.contentKey, plain.contentKey)
    const files = withoutGitmodules(await using(sparse, ({ entries }) => readAll(entries)))
    assert.deepEqual(Object.keys(files), ['libs/b.txt', 'libs/one/lib.txt', 'libs/one/nested/deep.txt'])
    assert.equal(other.requests().requests, 0)
    assert.deepEqual(Object.keys(await filesOf({ sparse: ['vendor'] })), ['vendor/foreign.txt', 'vendor/link'])
  })

  it('get the credentials of the object only on its own host, and not at the word of another', async () => {
    stage.server.behaviour.auth = { user: 'me', password: 'hunter2' }
    const watched = await startWatched(other)
    try {
      const back = await foreign.commit(
        { back: { submodule: ids.deep }, '.gitmodules': named({ back: `${stage.server.url}/deep.git` }) },
        'back',
        { branch: 'back', orphan: true },
      )
      const modules = { one: { submodule: ids.lib }, vendor: { submodule: ids.foreign } }
      const text = { one: '../lib.git', vendor: `${watched.url}/foreign.git` }
      const sha = await app.commit({ ...modules, '.gitmodules': named(text) }, 'x', { branch: 'main', orphan: true })
      const files = withoutGitmodules(await filesOf({ sha, access: me }))
      assert.deepEqual(Object.keys(files), ['one/lib.txt', 'one/nested/deep.txt', 'vendor/foreign.txt', 'vendor/link'])
      assert.ok(watched.authorizations.length > 0)
      assert.ok(
        watched.authorizations.every((header) => header === undefined),
        'credentials went to another host',
      )
      const trap = await app.commit(
        { vendor: { submodule: back }, '.gitmodules': named({ vendor: `${watched.url}/foreign.git` }) },
        'trap',
        { branch: 'main', orphan: true },
      )
      const err = await failureOf(filesOf({ sha: trap, access: me }))
      assert.match(err.message, /^submodule 'vendor\/back': .*authentication required/)
    } finally {
      await watched.stop()
    }
  })

  it('are not handed out when their server no longer accepts the credentials', async () => {
    stage.server.behaviour.auth = { user: 'me', password: 'hunter2' }
    const cacheFolder = join(stage.folder, 'revoked')
    await filesOf({ mirrors: stage.open({ cacheFolder }), access: me })
    stage.server.behaviour.auth = { user: 'me', password: 'new' }
    const err = await failureOf(filesOf({ mirrors: stage.open({ cacheFolder }), access: me }))
    assert.match(err.message, /^submodule 'libs\/one': .*authentication required/)
  })

  it('are known by the mirror that they come from', async () => {
    const entries: Entry[] = []
    await using(await open({ mirrors: stage.mirrors }), async (content) => {
      for await (const entry of content.entries) entries.push(entry)
    })
    const mirrorsOf = (start: string) =>
      new Set(entries.filter(({ path }) => path.startsWith(start)).map(({ contentId }) => contentId!.split(':')[0]))
    const sets = [mirrorsOf('a.txt'), mirrorsOf('libs/one/lib'), mirrorsOf('libs/one/nested'), mirrorsOf('vendor')]
    assert.deepEqual(
      sets.map((set) => set.size),
      [1, 1, 1, 1],
    )
    assert.equal(new Set(sets.flatMap((set) => [...set])).size, 4)
  })

  it('are made anew where their mirror is damaged', async () => {
    const cacheFolder = join(stage.folder, 'damaged')
    const folder = join(cacheFolder, 'mirrors')
    await filesOf({ mirrors: stage.open({ cacheFolder }) })
    for (const name of await readdir(folder)) {
      const packs = join(folder, name, 'repository.git/objects/pack')
      for (const file of await readdir(packs)) await rm(join(packs, file))
    }
    const mirrors = stage.open({ cacheFolder })
    assert.deepEqual(withoutGitmodules(await filesOf({ mirrors })), all)
    const { key } = mirrors.mirrorFor(`${stage.server.url}/app.git`, anonymous)
    await loseObject(join(folder, key, 'repository.git'), await app.git(['rev-parse', `${ids.app}:.gitmodules`]))
    assert.deepEqual(withoutGitmodules(await filesOf({ mirrors: stage.open({ cacheFolder }) })), all)
  })

  /** Takes a single object out of a repository. */
  async function loseObject(dir: string, line: string): Promise<void> {
    const packs = join(dir, 'objects/pack')
    const aside = join(stage.folder, 'aside')
    await rename(packs, aside)
    await mkdir(packs)
    await stage.run('sh', [
      '-c',
      `for p in '${aside}'/*.pack; do git --git-dir '${dir}' unpack-objects -q < "$p"; done`,
    ])
    const oid = line.trim()
    await rm(join(dir, 'objects', oid.slice(0, 2), oid.slice(2)))
  }

  it('are read by a few processes, however many they are', async () => {
    const many = Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`m${i}`, { submodule: ids.deep }]))
    const text = named(Object.fromEntries(Object.keys(many).map((path) => [path, '../deep.git'])))
    const { mirrors, cacheFolder } = stage
    await using(await open({ mirrors, sha: await commitWith(many, text) }), async ({ entries }) => {
      assert.equal(Object.keys(await readAll(entries)).length, 14)
      const running = (await stage.run('ps', ['-eo', 'args']))
        .split('\n')
        .filter((line) => line.endsWith('cat-file --batch'))
      const here = running.filter((line) => line.includes(cacheFolder))
      assert.ok(here.length > 0 && here.length <= 8, `${here.length} processes`)
    })
  })

  it('count towards the limit of files', async () => {
    const { mirrors } = stage
    assert.equal(Object.keys(await filesOf({ mirrors, maxFiles: 11 })).length, 8)
    const err = await failureOf(filesOf({ mirrors, maxFiles: 10 }))
    assert.equal(err.reason, 'TooManyFiles')
  })

  it('end at a depth of ten and a number of a hundred', async () => {
    const chain = await stage.server.repository('chain.git')
    let sha = await chain.commit({ 'x.txt': 'x' }, '0')
    for (let i = 1; i <= 11; i++) {
      const changes = { next: { submodule: sha }, '.gitmodules': named({ next: '../chain.git' }) }
      sha = await chain.commit(changes, `${i}`)
    }
    const { mirrors } = stage
    const tooDeep = await commitWith({ next: { submodule: sha } }, named({ next: '../chain.git' }))
    const err = await failureOf(filesOf({ mirrors, sha: tooDeep }))
    assert.match(err.message, /: submodule '(?:next\/){10}next': submodules are nested more than 10 deep$/)
    const many = Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`m${i}`, { submodule: ids.deep }]))
    const text = named(Object.fromEntries(Object.keys(many).map((path) => [path, '../deep.git'])))
    const tooMany = await commitWith(many, text)
    assert.match((await failureOf(filesOf({ mirrors, sha: tooMany }))).message, /more than 100 submodules$/)
  })

  const commitWith = (changes: Parameters<Repository['commit']>[0], gitmodules?: string) =>
    app.commit(
      { ...changes, 'x.txt': 'x', ...(gitmodules !== undefined && { '.gitmodules': gitmodules }) },
      'hostile',
      {
        branch: 'main',
        orphan: true,
      },
    )

  const hostile: [string, () => [Parameters<Repository['commit']>[0], string?], RegExp][] = [
    ['no .gitmodules', () => [{ sub: { submodule: ids.deep } }], /'sub': .*does not say/],
    ['another path', () => [{ sub: { submodule: ids.deep } }, named({ sup: '../deep.git' })], /'sub': .*does not say/],
    [
      'a path twice',
      () => [
        { sub: { submodule: ids.deep } },
        named({ sub: '../deep.git' }) + named({ sub: '../lib.git' }).replace('"sub"', '"b"'),
      ],
      /'sub': .*not clearly/,
    ],
    [
      'a path with CR',
      () => [{ 'sub\r': { submodule: ids.deep } }, named({ sub: '../deep.git' }).replace('= sub', '= "sub\r"')],
      /control character/,
    ],
    [
      'a path like an option',
      () => [{ '-sub': { submodule: ids.deep } }, named({ '-sub': '../deep.git' })],
      /starts with '-'|gitmodulesPath/,
    ],
    ['a local URL', () => [{ sub: { submodule: ids.deep } }, named({ sub: 'file:///etc' })], /must start with http/],
    ['a URL above its host', () => [{ sub: { submodule: ids.deep } }, named({ sub: '../../../x' })], /above the host/],
    ['a URL that needs a key', () => [{ sub: { submodule: ids.deep } }, named({ sub: 'git@h:x' })], /needs a key/],
    [
      'a missing commit',
      () => [{ sub: { submodule: '1'.repeat(40) } }, named({ sub: '../deep.git' })],
      /not found|unable to clone/,
    ],
    [
      'a missing repository',
      () => [{ sub: { submodule: ids.deep } }, named({ sub: '../none.git' })],
      /'sub': .*none\.git/,
    ],
    ['nonsense', () => [{ sub: { submodule: ids.deep } }, '[nonsense'], /bad config/],
    ['a large file', () => [{ sub: { submodule: ids.deep } }, `#${'x'.repeat(1_100_000)}`], /larger than 1 MiB/],
    [
      'a symbolic link',
      () => [{ sub: { submodule: ids.deep }, '.gitmodules': { symlink: 'x.txt' } }],
      /not a file|gitmodulesSymlink/,
    ],
  ]
  for (const [what, make, why] of hostile) {
    it(`fail clearly with ${what}`, async () => {
      const err = await failureOf(filesOf({ sha: await commitWith(...make()), mirrors: stage.mirrors }))
      assert.equal(err.reason, 'GitOperationFailed')
      assert.match(err.message, why)
      assert.doesNotMatch(err.message, /\p{Cc}/u)
    })
  }

  it('are no reason to fetch anything again where what says where they are is nonsense', async () => {
    const sha = await commitWith({ sub: { submodule: ids.deep } }, '[nonsense')
    await failureOf(filesOf({ sha, mirrors: stage.mirrors }))
    stage.server.reset()
    await failureOf(filesOf({ sha, mirrors: stage.mirrors }))
    assert.equal(stage.server.requests().requests, 0)
  })
})

interface Wish {
  mirrors?: Mirrors
  sha?: string
  access?: Access
  sparse?: string[]
  maxFiles?: number
}

const me = accessFromSecret({ username: Buffer.from('me'), password: Buffer.from('hunter2') }, 'ns/n')!

/** The same server under another address that writes down who asks. */
async function startWatched(behind: GitServer) {
  const authorizations: (string | undefined)[] = []
  const server = createServer((asked, answer) => {
    authorizations.push(asked.headers.authorization)
    const { method, headers } = asked
    const passed = request(behind.url + asked.url, { method, headers }, (response) => {
      answer.writeHead(response.statusCode!, response.headers)
      response.pipe(answer)
    })
    asked.pipe(passed.on('error', () => answer.destroy()))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    authorizations,
    stop: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
