import assert from 'node:assert/strict'
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
  let moody: GitServer

  before(async () => {
    story = await Story.open()
    liar = await startLyingGitServer(story.git.url)
    moody = await startGitServer()
    controller = await story.startController({ flags: ['--concurrent=4'] })
    stillServed = await addBystander(story)
    await putSecret(story, 'login', { username: 'me', password })
  })
  after(async () => {
    await story.close()
    await liar.stop()
    await moody.stop()
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

  for (const [what, pathOf, message] of [
    ['another commit than the one asked for', (first: string) => `want=${first}`, /[0-9a-f]{40}/],
    ['a pack with a wrong checksum', () => 'checksum', /pack is corrupted/],
    ['refs without end', () => 'refs', /longer than 67108864 bytes/],
    ['progress without end', () => 'progress', /timed out/],
    ['escape sequences and what it was told', () => 'error', /you said me:\*\*\*/],
  ] as const) {
    it(`that send ${what} change nothing`, async () => {
      const name = `lie-${message.source.replace(/\W+/g, '').slice(0, 8).toLowerCase()}`
      const { before, first, repository } = await stored(name, { timeout: '5s' })
      await repository.commit({ 'app.yaml': 'a: 2\n' }, 'second')
      await turn(name, { url: `${liar.url}/${pathOf(first)}/${name}.git`, secretRef: { name: 'login' } })
      await fails(before, message)
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
    it(`that have ${what} leave what is stored`, async () => {
      const { before, repository } = await stored(`changed-${i}`, spec)
      await change(repository)
      await story.request(`changed-${i}`)
      await fails(before, message, reason)
    })
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
      () => ({ redirect: { status: 307, location: `${moody.url.replace('127.0.0.1', 'localhost')}/*` } }),
      /more than 5 redirects|authentication required/,
    ],
    ['send a byte a second', () => ({ dripMs: 1_000 }), /timed out after spec\.timeout/],
    ['stall after the headers', () => ({ stallBytes: 0 }), /timed out after spec\.timeout/],
    ['close in the midst of a pack', () => ({ truncateBytes: 500 }), /unable to clone/],
  ]
  for (const [i, [what, moodOf, message]] of moods.entries()) {
    it(`that ${what} are given up in time`, async () => {
      const name = `mood-${i}`
      const { before, repository } = await stored(name, { timeout: '3s', secretRef: { name: 'login' } }, moody)
      await repository.commit({ 'app.yaml': 'a: 2\n' }, 'second')
      Object.assign(moody.behaviour, moodOf())
      try {
        await story.request(name)
        await fails(before, message)
        await turn(name, { suspend: true })
        await eventually(() => moody.running() === 0)
      } finally {
        Object.assign(moody.behaviour, { redirect: undefined, dripMs: undefined, stallBytes: undefined })
        moody.behaviour.truncateBytes = undefined
      }
    })
  }

  it('are told no credentials of a URL to others', async () => {
    moody.behaviour.auth = { user: 'me', password: 'another' }
    const url = moody.url.replace('//', `//me:${password}@`)
    await story.apply('userinfo', { url: `${url}/mood-0.git` })
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
