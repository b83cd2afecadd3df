import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { isolated, makeRepository } from './git-repository.ts'
import { startGitServer, type GitServer } from './git-server.ts'

const run = promisify(execFile)

describe('the Git server for tests', function () {
  this.timeout(60_000)
  let server: GitServer
  let folder: string
  const git = async (...args: string[]) =>
    (await run('git', args, { env: { PATH: process.env['PATH'], HOME: folder, LC_ALL: 'C', ...isolated } })).stdout

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'git-server-test-'))
    server = await startGitServer()
  })
  after(async () => {
    await server.stop()
    await rm(folder, { recursive: true, force: true })
  })

  it('serves what a repository is made of: files, modes, links, branches and tags', async () => {
    const repository = await server.repository('app.git')
    const first = await repository.commit({ 'a.txt': 'a', 'b/run': { content: 'b', mode: 0o755 } }, 'first')
    const second = await repository.commit({ 'a.txt': null, link: { symlink: 'b/run' } }, 'second')
    await repository.branch('dev', first)
    await repository.tag('v1')
    await repository.tag('v2', { target: first, message: 'annotated' })
    const refs = await git('ls-remote', `${server.url}/app.git`)
    for (const ref of [
      `${second}\trefs/heads/main`,
      `${first}\trefs/heads/dev`,
      `${second}\trefs/tags/v1`,
      `${first}\trefs/tags/v2^{}`,
    ]) {
      assert.ok(refs.includes(ref), ref)
    }
    await git('clone', '--quiet', '--bare', `${server.url}/app.git`, join(folder, 'clone.git'))
    const tree = await git(
      '--git-dir',
      join(folder, 'clone.git'),
      'ls-tree',
      '-r',
      '--format=%(objectmode) %(path)',
      'main',
    )
    assert.equal(tree, '100755 b/run\n120000 link\n')
    await repository.remove('refs/heads/dev')
    assert.doesNotMatch(await git('ls-remote', `${server.url}/app.git`), /dev/)
  })

  it('gives equal commits for equal calls', async () => {
    const shas: string[] = []
    for (const name of ['one.git', 'two.git'])
      shas.push(await (await server.repository(name)).commit({ a: 'a' }, 'same'))
    assert.equal(shas[0], shas[1])
  })

  it('serves repositories elsewhere by a name, and nothing outside', async () => {
    await (await makeRepository(join(folder, 'elsewhere'))).commit({ a: 'a' }, 'x')
    const other = await startGitServer({ repositories: { 'named.git': join(folder, 'elsewhere') } })
    try {
      assert.match(await git('ls-remote', `${other.url}/named.git`), /refs\/heads\/main/)
      for (const path of ['/elsewhere', '/..%2felsewhere', '/%2e%2e/elsewhere', '/%zz']) {
        assert.equal((await fetch(`${other.url}${path}/info/refs?service=git-upload-pack`)).status, 404, path)
      }
    } finally {
      await other.stop()
    }
  })

  it('takes no pushes', async () => {
    const push = git('--git-dir', join(folder, 'clone.git'), 'push', `${server.url}/app.git`, 'main:other')
    await assert.rejects(push, /403|not permitted|unable to access/)
  })

  it('counts what passes', async () => {
    server.reset()
    await git('ls-remote', `${server.url}/app.git`, 'main')
    const { requests, bytesIn, bytesOut, paths } = server.requests()
    assert.equal(requests, paths.length)
    assert.match(paths[0]!, /^GET \/app\.git\/info\/refs\?service=git-upload-pack$/)
    assert.ok(bytesIn > 100 && bytesOut > 100)
  })
})
