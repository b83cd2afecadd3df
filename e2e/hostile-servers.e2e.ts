import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { GitRepositoryKind, type GitRepositorySpec } from '../controllers/git/types.ts'
import { getCondition } from '../controllers/runtime/conditions.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import { addBystander, assertUntold, putSecret } from './bystander.ts'
import type { ControllerProcess } from './controller-process.ts'
import { type Behaviour, type GitServer, type Repository, startGitServer } from './git-server.ts'
import { type LyingGitServer, startLyingGitServer } from './lying-git-server.ts'
import { assertServes, Story, type StoredRepository } from './story.ts'

const password = 'hunter2-correct-horse'

describe('hostile servers', () => {
  let story: Story
  let controller: ControllerProcess
  let stillServed: () => Promise<void>
  let liar: LyingGitServer
  /** Would open with the very credentials that the objects have. */
  let vault: GitServer

  /** All of them begin together, as most of what they do is to wait; each test then looks for the end of one. */
  const beginnings: (() => Promise<void>)[] = []
  const begun = new Map<string, StoredRepository>()
  const begin = (name: string, work: () => Promise<StoredRepository>) =>
    beginnings.push(async () => void begun.set(name, await work()))

  before(async () => {
    story = await Story.open()
    liar = await startLyingGitServer(story.git.url)
    vault = await startGitServer({ auth: { user: 'me', password } })
    controller = await story.startController({ flags: ['--concurrent=8'] })
    stillServed = await addBystander(story)
    await putSecret(story, 'login', { username: 'me', password })
    await Promise.all(beginnings.map((work) => work()))
  })
  after(async () => {
    await story.close()
    await liar.stop()
    await vault.stop()
  })

  /** Whatever an object meets with: the others are served as before. */
  afterEach(() => stillServed())

  /** An object with an artifact, and the repository that it came from. */
  async function stored(name: string, spec: Partial<GitRepositorySpec> = {}, server: GitServer = story.git) {
    const repository = await server.repository(`${name}.git`)
    const first = await repository.commit({ 'app.yaml': 'a: 1\n' }, 'first')
    await repository.tag('v1')
    await repository.branch('other', first)
    await story.apply(name, { url: `${server.url}/${name}.git`, ...spec })
    return { repository, first, before: await story.ready(name) }
  }

  /** Fails for the reason, will be tried again, and what was stored before is still there. */
  async function fails(before: StoredRepository, message: RegExp, reason = 'GitOperationFailed'): Promise<void> {
    const object = await story.failed(before.metadata.name, message)
    for (const type of ['Ready', 'FetchFailed']) assert.equal(getCondition(object, type)?.reason, reason)
    assert.equal(getCondition(object, 'Stalled'), undefined)
    assert.doesNotMatch(JSON.stringify(object.status?.conditions), /\\u00|owned/)
    assert.deepEqual(object.status?.artifact, before.status.artifact)
    await assertServes(before.status.artifact)
  }

  const turn = (name: string, spec: Partial<GitRepositorySpec>) =>
    story.client.patch(GitRepositoryKind, { namespace: story.namespace, name }, { spec })

  const lies: [string, (first: string) => string, RegExp][] = [
    ['another commit than the one asked for', (first) => `want=${first}`, /[0-9a-f]{40}/],
    ['a pack with a wrong checksum', () => 'checksum', /pack is corrupted/],
    ['refs without end', () => 'refs', /longer than 67108864 bytes/],
    ['progress without end', () => 'progress', /timed out/],
    ['escape sequences and what it was told', () => 'error', /you said me:\*\*\*/],
  ]
  for (const [i, [what, pathOf, message]] of lies.entries()) {
    const name = `lie-${i}`
    begin(name, async () => {
      const { before, first, repository } = await stored(name, { timeout: '5s' })
      await repository.commit({ 'app.yaml': 'a: 2\n' }, 'second')
      await turn(name, { url: `${liar.url}/${pathOf(first)}/${name}.git`, secretRef: { name: 'login' } })
      return before
    })
    it(`that send ${what} change nothing`, async () => {
      await fails(begun.get(name)!, message)
      await turn(name, { suspend: true }) // each retry would read as much again
    })
  }

  const changes: [string, Partial<GitRepositorySpec>, (r: Repository) => Promise<unknown>, RegExp, string?][] = [
    ['lost the branch', {}, (r) => r.remove('refs/heads/main'), /couldn't find remote ref "refs\/heads\/main"/],
    ['lost the tag', { ref: { tag: 'v1' } }, (r) => r.remove('refs/tags/v1'), /couldn't find remote ref/],
    [
      'a HEAD that is not born',
      { ref: { defaultBranch: true } },
      (r) => r.git(['symbolic-ref', 'HEAD', 'refs/heads/unborn']),
      /HEAD names no branch/,
    ],
    [
      'become empty',
      {},
      async (r) => {
        for (const ref of ['refs/heads/main', 'refs/heads/other', 'refs/tags/v1']) await r.remove(ref)
      },
      /^git repository is empty$/,
      'EmptyGitRepository',
    ],
  ]
  for (const [i, [what, spec, change, message, reason]] of changes.entries()) {
    const name = `changed-${i}`
    begin(name, async () => {
      const { before, repository } = await stored(name, spec)
      await change(repository)
      await story.request(name)
      return before
    })
    it(`that have ${what} leave what is stored`, () => fails(begun.get(name)!, message, reason))
  }

  it('that have rewritten a branch or moved a tag are followed', async () => {
    for (const [name, ref] of [
      ['forced', { branch: 'main' }],
      ['moved', { tag: 'v1' }],
    ] as const) {
      const { repository } = await stored(name, { ref })
      const commit = await repository.commit({ 'b.yaml': 'b' }, 'rewritten', { orphan: true })
      await repository.tag('v1')
      await story.request(name)
      const { status } = await story.ready(name, `${'tag' in ref ? 'v1' : 'main'}@sha1:${commit}`)
      await assertServes(status.artifact)
    }
  })

  const moods: [string, () => Partial<Behaviour>, RegExp][] = [
    [
      'send us to where clouds keep their secrets',
      () => ({ redirect: { status: 301, location: 'http://169.254.169.254/*' } }),
      /link-local/,
    ],
    ['send us in a circle', () => ({ redirect: { status: 302, location: '*' } }), /more than 5 redirects/],
    [
      'send us and our password to another host',
      () => ({ redirect: { status: 307, location: `${vault.url.replace('127.0.0.1', 'localhost')}/*` } }),
      /authentication required/,
    ],
    ['send a byte a second', () => ({ dripMs: 1_000 }), /timed out after spec\.timeout/],
    ['stall after the headers', () => ({ stallBytes: 0 }), /timed out after spec\.timeout/],
    ['close in the midst of a pack', () => ({ truncateBytes: 500 }), /unable to clone/],
  ]
  for (const [i, [what, moodOf, message]] of moods.entries()) {
    const name = `mood-${i}`
    let server: GitServer
    begin(name, async () => {
      server = await startGitServer()
      const { before, repository } = await stored(name, { timeout: '4s', secretRef: { name: 'login' } }, server)
      await repository.commit({ 'app.bin': randomBytes(5_000) }, 'second')
      Object.assign(server.behaviour, moodOf())
      await story.request(name)
      return before
    })
    after(() => server.stop())
    it(`that ${what} are given up in time`, async () => {
      await fails(begun.get(name)!, message)
      await turn(name, { suspend: true })
      await eventually(() => server.running() === 0)
    })
  }

  it('that give something to one who may have it give it to nobody else by way of us', async () => {
    const { first } = await stored('private', { secretRef: { name: 'login' } }, vault)
    await putSecret(story, 'wrong', { username: 'me', password: 'hunter2-wrong' })
    const url = `${vault.url}/private.git`
    const thieves: [string, Partial<GitRepositorySpec>][] = [
      ['without', {}],
      ['wrong', { secretRef: { name: 'wrong' } }],
      ['commit', { ref: { commit: first } }],
      ['wrong-commit', { ref: { commit: first }, secretRef: { name: 'wrong' } }],
      ['detour', { url: `${story.git.url}/none.git`, fallbackURLs: [url] }],
    ]
    for (const [name, spec] of thieves) await story.apply(`thief-${name}`, { url, ...spec })
    for (const [name] of thieves) {
      const object = await story.failed(`thief-${name}`, /authentication required|repository not found/)
      assert.equal(object.status?.artifact, undefined)
      assert.equal(await story.artifact(`thief-${name}`), undefined)
    }
  })

  it('are told no credentials of a URL to others', async () => {
    const url = vault.url.replace('//', `//me:${password}-no@`)
    await story.apply('userinfo', { url: `${url}/private.git` })
    await story.failed('userinfo', /authentication required/)
    await eventually(async () => (await story.events('userinfo', 'GitOperationFailed')).length > 0)
  })

  it('and what rots on our own disk give no wrong byte', async () => {
    const { repository, before } = await stored('rotten')
    const mirrors = join(story.storage, '.openflux/git/mirrors')
    for (const name of await readdir(mirrors)) {
      if (!(await readFile(join(mirrors, name, 'url'), 'utf8')).endsWith('/rotten.git\n')) continue
      const dir = join(mirrors, name, 'repository.git')
      // What a process leaves behind that was killed.
      for (const lock of ['shallow.lock', 'index.lock', 'config.lock']) await writeFile(join(dir, lock), '')
      const packs = (await readdir(join(dir, 'objects/pack'))).filter((file) => file.endsWith('.pack'))
      assert.ok(packs.length > 0)
      for (const pack of packs.map((file) => join(dir, 'objects/pack', file))) {
        const bytes = await readFile(pack)
        bytes[Math.floor(bytes.length / 2)]! ^= 0xff
        await rm(pack)
        await writeFile(pack, bytes)
      }
    }
    const commit = await repository.commit({ 'more.yaml': 'b: 1\n' }, 'second')
    await story.request('rotten')
    const { status } = await story.ready('rotten', `main@sha1:${commit}`)
    await assertServes(before.status.artifact)
    await story.apply('sound', { url: `${story.git.url.replace('127.0.0.1', 'localhost')}/rotten.git` })
    assert.equal((await story.ready('sound')).status.artifact.digest, status.artifact.digest)
  })

  it('have made nobody tell a secret', () => assertUntold(story, controller, [password, 'hunter2']))
})
