import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sanitize } from './failure.ts'
import { GitError, runGit } from './git.ts'
import { openStage, processesOf } from './test-support.ts'

describe('a git process', function () {
  this.timeout(60_000)
  let folder: string
  let signal: AbortSignal

  beforeEach(() => (signal = AbortSignal.timeout(60_000)))
  before(async () => (folder = await mkdtemp(join(tmpdir(), 'openflux-git-'))))
  after(() => rm(folder, { recursive: true, force: true }))

  /** The environment in which `git` is this shell script. */
  async function pretending(script: string): Promise<Record<string, string>> {
    await writeFile(join(folder, 'git'), `#!/bin/sh\n${script}\n`)
    await chmod(join(folder, 'git'), 0o755)
    return { PATH: `${folder}:/usr/bin:/bin`, HOME: folder }
  }

  it('gives its standard output, and knows nothing of the surroundings', async () => {
    const out = await runGit(['x'], { env: await pretending('env | cut -d= -f1 | sort'), signal })
    const names = out.toString().trim().split('\n')
    assert.deepEqual(
      names.filter((name) => !['PWD', '_', 'SHLVL', 'OLDPWD'].includes(name)),
      ['HOME', 'PATH'],
    )
  })

  it('fails with the lines that tell why, without secrets, escapes and chatter', async () => {
    const script = `printf 'Counting objects\\rremote: \\033[31mno\\033[0m\\nfatal: bad https://me:hunter2@host/x\\n' >&2; exit 128`
    const failure = runGit(['x'], { env: await pretending(script), signal, secrets: ['hunter2'] })
    await assert.rejects(failure, (err) => {
      assert.ok(err instanceof GitError)
      assert.equal(err.exitCode, 128)
      assert.equal(err.message, 'remote: no; fatal: bad https://host/x')
      return true
    })
  })

  it('may say anything for as long as it likes', async () => {
    const script = `i=0; while [ $i -lt 20000 ]; do echo 'remote: \\033[2J progress progress progress' >&2; i=$((i+1)); done; exit 1`
    await assert.rejects(
      runGit(['x'], { env: await pretending(script), signal }),
      (err: Error) => err.message.length < 600,
    )
  })

  it('is ended when it writes too much', async () => {
    const failure = runGit(['x'], { env: await pretending('yes'), signal, maxBytes: 100_000 })
    await assert.rejects(failure, /more than 100000 bytes/)
  })

  it('is ended with all that it has started, even if they ignore being asked', async () => {
    const abort = new AbortController()
    let group = 0
    const script = `trap '' TERM; sh -c "trap '' TERM; sleep 600" & sleep 600 & wait`
    const running = runGit(['x'], {
      env: await pretending(script),
      signal: abort.signal,
      onStart: (pid) => {
        group = pid
        setTimeout(() => abort.abort(new Error('enough')), 200)
      },
    })
    await assert.rejects(running, /enough/)
    assert.deepEqual(await processesOf(group), [])
  })

  it('that is missing is a failure like others', async () => {
    await assert.rejects(runGit(['x'], { env: { PATH: '/nowhere', HOME: folder }, signal }), GitError)
  })

  it('is not started when it is too late', async () => {
    const env = await pretending('touch started')
    await assert.rejects(runGit(['x'], { env, signal: AbortSignal.abort(new Error('late')) }), /late/)
  })
})

describe('the git that writes down how it was called', function () {
  this.timeout(60_000)

  it('writes whole lines, however many of it run at once', async () => {
    const stage = await openStage()
    try {
      const before = (await stage.processes()).length
      const git = join(stage.folder, 'bin/git')
      await Promise.all(Array.from({ length: 200 }, (_, i) => stage.run(git, ['-c', `x.y=${i}`, '--version'])))
      const lines = (await stage.processes()).slice(before).map((line) => line.trim())
      const expected = Array.from({ length: 200 }, (_, i) => `-c x.y=${i} --version`)
      assert.deepEqual(lines.toSorted(), expected.toSorted())
    } finally {
      await stage.close()
    }
  })
})

describe('text from the other side', () => {
  it('is shown without what could upset a terminal or tell a secret', () => {
    assert.equal(sanitize('a\u001b[31mb\u001b]0;title\u0007c\u001b(Bd\re\u009b1mf\u202eg\n\nh'), 'abcd e 1mf g h')
    assert.equal(sanitize('https://user:pw@host/x and ssh://git@host'), 'https://host/x and ssh://host')
    assert.equal(sanitize('hunter2 and hunter2', ['hunter2']), '*** and ***')
    assert.equal(sanitize('x'.repeat(600)).length, 503)
  })
})
