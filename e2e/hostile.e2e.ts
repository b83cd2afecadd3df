import assert from 'node:assert/strict'
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { getCondition } from '../controllers/runtime/conditions.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import type { GitRepositorySpec } from '../controllers/git/types.ts'
import { type Repository, startGitServer } from './git-server.ts'
import { assertServes, Story } from './story.ts'

const run = promisify(execFile)

describe('hostile input', () => {
  let story: Story
  let good: Repository
  /** Every git process that the controller started: its arguments and what of its environment matters. */
  let calls: string

  before(async () => {
    story = await Story.open()
    good = await story.repository('app.git')
    await good.commit({ 'app.yaml': 'a: 1\n' }, 'first')
    calls = join(story.folder, 'git-calls')
    await writeFile(calls, '')
    const path = await recordingGit(story.folder, calls)
    await story.startController({ env: { PATH: path }, flags: ['--git-max-repository-size=2Mi', '--concurrent=4'] })
    await story.apply('good')
    await story.ready('good')
  })
  after(() => story.close())

  /** Whatever an object does: the others are served as before. */
  afterEach(async () => {
    const commit = await good.commit({ 'app.yaml': `a: ${Math.random()}\n` }, 'next')
    await story.request('good')
    await assertServes((await story.ready('good', `main@sha1:${commit}`)).status.artifact)
  })

  for (const url of [
    '--upload-pack=touch /tmp/x',
    '-oProxyCommand=x',
    'file:///etc',
    'ext::sh -c true',
    'git+ssh://host/x',
    'fd::7',
    'http://127.0.0.1/x\nhttp://y',
  ]) {
    it(`refuses the URL ${JSON.stringify(url)} before it is stored`, async () => {
      await assert.rejects(story.apply('bad-url', { url }), /spec\.url/)
    })
  }

  const stalled: [string, Partial<GitRepositorySpec>][] = [
    ['a URL without a host', { url: 'http:///x' }],
    ['a branch that looks like an option', { ref: { branch: '--upload-pack=touch x' } }],
    ['a tag that looks like an option', { ref: { tag: '-x' } }],
    ['a ref name that leaves the refs', { ref: { name: 'refs/heads/../../x' } }],
    ['a commit that is none', { ref: { commit: '--exec=x' } }],
    ['a branch of 10 kB', { ref: { branch: 'b'.repeat(10_000) } }],
    ['a branch that is a setting of git', { ref: { branch: '-c PROTOCOL.ALLOW=always' } }],
    ['a tag that is a setting of git', { ref: { tag: '--config-env=PROTOCOL.ALLOW=HOME' } }],
    ['a name that is a setting of git', { ref: { name: 'refs/heads/x -c PROTOCOL.ALLOW=always' } }],
    ['a range that is a setting of git', { ref: { semver: '-c PROTOCOL.ALLOW=always' } }],
    ['a branch of another time', { ref: { branch: '@{-1}' } }],
    ['a folder that is a setting of git', { sparseCheckout: ['a', '-cPROTOCOL.ALLOW=always'] }],
    ['a folder above the repository', { sparseCheckout: ['a/../../PROTOCOL.ALLOW'] }],
    ['an include that is an option', { include: [{ repository: { name: '--exec=touch' } }] }],
    ['an include that goes to a Git folder', { include: [{ repository: { name: 'good' }, toPath: '.GIT/hooks' }] }],
    ['a further address that is an option', { fallbackURLs: ['ssh://-oProxyCommand=touch/x'] }],
  ]
  for (const [i, [what, spec]] of stalled.entries()) {
    it(`stalls on ${what}`, async () => {
      await story.apply(`stalled-${i}`, spec)
      const object = await story.failed(`stalled-${i}`)
      assert.equal(getCondition(object, 'Stalled')?.status, 'True', JSON.stringify(object.status?.conditions))
      assert.equal(getCondition(object, 'Reconciling'), undefined)
      assert.equal(object.status?.observedGeneration, object.metadata.generation)
    })
  }

  it('looks for a branch whose name only looks like a setting of git, and finds none', async () => {
    await story.apply('setting', { ref: { branch: 'PROTOCOL.ALLOW=always' }, sparseCheckout: ['GIT_CONFIG_COUNT=1'] })
    const object = await story.failed('setting', /couldn't find remote ref "refs\/heads\/PROTOCOL\.ALLOW=always"/)
    assert.equal(getCondition(object, 'Stalled'), undefined)
  })

  for (const [name, path] of [
    ['dotdot', '../x'],
    ['dotgit', '.git/config'],
    ['dotgit-case', '.GIT/config'],
  ] as const) {
    it(`refuses a tree with the entry ${path}`, async () => {
      const repository = await story.repository(`${name}.git`)
      await repository.rawTree([{ mode: '100644', name: path, content: 'evil' }], 'hostile')
      await story.apply(name, { url: `${story.git.url}/${name}.git` })
      const object = await story.failed(name)
      assert.match(getCondition(object, 'Ready')!.reason, /GitOperationFailed|ArchiveOperationFailed/)
      assert.equal(object.status?.artifact, undefined)
    })
  }

  it('drops symlinks that lead out of the tree, and keeps the rest', async () => {
    const repository = await story.repository('links.git')
    await repository.commit(
      { 'app.yaml': 'a: 1\n', passwd: { symlink: '/etc/passwd' }, up: { symlink: '../../x' } },
      'links',
    )
    await story.apply('links', { url: `${story.git.url}/links.git` })
    const { artifact } = (await story.ready('links')).status
    const archive = join(story.folder, 'links.tar.gz')
    await writeFile(archive, await assertServes(artifact))
    assert.equal((await run('tar', ['-tzf', archive])).stdout.trim(), 'app.yaml')
  })

  it('refuses a repository that is larger than the limit, and says so', async () => {
    const repository = await story.repository('large.git')
    await repository.commit({ 'large.bin': randomBytes(8_000_000) }, 'large')
    await story.apply('large', { url: `${story.git.url}/large.git` })
    await story.failed('large', /git-max-repository-size/)
  })

  it('gives up on a server that hangs when the timeout has passed, and leaves no process behind', async () => {
    for (const hang of ['info/refs', 'git-upload-pack'] as const) {
      const server = await startGitServer({ hang })
      await (await server.repository('app.git')).commit({ 'a.yaml': 'a' }, 'x')
      const name = `hang-${hang.replace('/', '-')}`
      await story.apply(name, { url: `${server.url}/app.git`, timeout: '2s' })
      await story.failed(name, /timed out after spec\.timeout/)
      await eventually(() => server.running() === 0)
      await server.stop()
    }
  })

  it('has started git with none of the hostile words as an option, and with configuration and hooks off', async () => {
    const lines = (await readFile(calls, 'utf8')).trim().split('\n')
    assert.ok(lines.length > 1, 'the recorder saw nothing: the test has shown nothing')
    for (const line of lines) {
      assert.doesNotMatch(line, /--upload-pack|--exec|ProxyCommand|PROTOCOL|touch|file:\/\/\/etc|ext::/i)
      assert.match(line, /GIT_CONFIG_NOSYSTEM=1 /)
      assert.match(line, /GIT_CONFIG_GLOBAL=\/dev\/null /)
      assert.match(line, /GIT_TERMINAL_PROMPT=0 /)
    }
  })
})

/** A folder with a `git` that writes down how it was called and then is the real one; gives the PATH to use. */
async function recordingGit(folder: string, calls: string): Promise<string> {
  const real = (await run('sh', ['-c', 'command -v git'])).stdout.trim()
  const bin = join(folder, 'bin')
  await mkdir(bin)
  const script = `#!/bin/sh
settings="GIT_CONFIG_NOSYSTEM=$GIT_CONFIG_NOSYSTEM GIT_CONFIG_GLOBAL=$GIT_CONFIG_GLOBAL GIT_TERMINAL_PROMPT=$GIT_TERMINAL_PROMPT"
line=$(printf '%s ' "$settings" "$@" | tr '\\n' ' ')
printf '%s\\n' "$line" >> '${calls}'
exec '${real}' "$@"
`
  await writeFile(join(bin, 'git'), script)
  await chmod(join(bin, 'git'), 0o755)
  return `${bin}${delimiter}${process.env.PATH}`
}
