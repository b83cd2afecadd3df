import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdir, readFile, rename, rm, stat, truncate, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { deflateSync } from 'node:zlib'
import { startGitServer, type Repository } from '../../../e2e/git-server.ts'
import { eventually } from '../../runtime/eventually.ts'
import { accessFromSecret, anonymous } from '../access/access.ts'
import type { Mirror } from './mirror.ts'
import type { Mirrors } from './mirrors.ts'
import { failureOf, openStage, processesOf, readAll, type Stage } from '../test-support.ts'
import { openContent } from '../content/content.ts'

describe('a mirror', function () {
  this.timeout(120_000)
  let stage: Stage
  let repository: Repository
  let url: string
  let first: string
  let second: string
  let signal: AbortSignal

  beforeEach(async () => {
    signal = AbortSignal.timeout(120_000)
    stage = await openStage({ maxRepositoryBytes: 1_000_000 })
    repository = await stage.server.repository('app.git')
    url = `${stage.server.url}/app.git`
    first = await repository.commit({ 'a.txt': 'one', 'b.bin': randomBytes(100_000) }, 'first')
    second = await repository.commit({ 'a.txt': 'two' }, 'second')
  })
  afterEach(() => stage.close())

  const mirrorOf = (mirrors: Mirrors = stage.mirrors) => mirrors.mirrorFor(url, anonymous)

  const urlForGit = async (mirror: Mirror) => (await mirror.remote.connect({ home: '/', path: '/', run: '/' })).url

  async function filesOf(mirror: Mirror, sha: string, ref?: string): Promise<Record<string, string>> {
    const content = await openContent({ mirror, sha, ref, signal })
    try {
      return await readAll(content.entries)
    } finally {
      await content.close()
    }
  }

  async function repositoryDir(): Promise<string> {
    const [name = ''] = await readdir(join(stage.cacheFolder, 'mirrors'))
    return join(stage.cacheFolder, 'mirrors', name, 'repository.git')
  }

  async function packs(suffix = '.pack'): Promise<string[]> {
    const folder = join(await repositoryDir(), 'objects/pack')
    return (await readdir(folder)).filter((name) => name.endsWith(suffix)).map((name) => join(folder, name))
  }

  const fetches = async () => (await stage.processes()).filter((line) => / fetch /.test(line)).length

  it('fetches a commit once, and later ones by what is new', async () => {
    assert.equal((await filesOf(mirrorOf(), first))['a.txt'], 'one')
    assert.equal(await fetches(), 1)
    await filesOf(mirrorOf(), first)
    await filesOf(mirrorOf(stage.open()), first)
    assert.equal(await fetches(), 1)
    stage.server.reset()
    assert.equal((await filesOf(mirrorOf(), second))['a.txt'], 'two')
    assert.ok(stage.server.requests().bytesOut < 5_000, `${stage.server.requests().bytesOut} bytes for one line`)
  })

  it('shares one fetch among all who want the same commit, in one process and between two', async () => {
    const other = mirrorOf(stage.open())
    const readers = Array.from({ length: 10 }, (_, i) => filesOf(i % 2 ? other : mirrorOf(), first))
    for (const files of await Promise.all(readers)) assert.equal(files['a.txt'], 'one')
    assert.equal(await fetches(), 1)
  })

  it('goes on for those who wait when one of them gives up, and ends when all have', async () => {
    stage.server.behaviour.dripMs = 1
    const aborts = [new AbortController(), new AbortController()]
    const waits = aborts.map(({ signal: own }) => mirrorOf().fetchCommit({ sha: first }, own))
    await eventually(async () => (await fetches()) === 1 && stage.server.running() === 1)
    aborts[0]!.abort()
    assert.match((await failureOf(waits[0]!)).message, /aborted/)
    assert.equal(stage.server.running(), 1)
    aborts[1]!.abort()
    assert.match((await failureOf(waits[1]!)).message, /aborted/)
    await eventually(() => stage.server.running() === 0)
    stage.server.behaviour.dripMs = undefined
    assert.equal((await filesOf(mirrorOf(), first))['a.txt'], 'one')
  })

  it('leaves no process of the group behind when a fetch is aborted', async () => {
    await mirrorOf().remote.greet(0, signal)
    stage.server.behaviour.hang = 'git-upload-pack'
    const abort = new AbortController()
    const wait = mirrorOf().fetchCommit({ sha: first }, abort.signal)
    const group = await eventually(() => groupOf(stage.cacheFolder))
    await eventually(async () => (await processesOf(group)).length >= 2) // git and its helper
    abort.abort()
    await failureOf(wait)
    await eventually(async () => (await processesOf(group)).length === 0)
  })

  it('is made anew when its objects are damaged, and gives no wrong byte meanwhile', async () => {
    const good = await filesOf(mirrorOf(), first)
    const damages: ((path: string) => Promise<void>)[] = [
      async (pack) => {
        const bytes = await readFile(pack)
        bytes[Math.floor(bytes.length / 2)]! ^= 0xff
        await rm(pack)
        await writeFile(pack, bytes)
      },
      (pack) => truncate(pack, 100),
      (pack) => rm(pack),
      (pack) => writeFile(pack.replace(/pack$/, 'idx'), 'nonsense', { flag: 'r+' }),
    ]
    for (const damage of damages) {
      for (const pack of await packs()) {
        await stage.run('chmod', ['u+w', pack, pack.replace(/pack$/, 'idx')])
        await damage(pack)
      }
      const files = await filesOf(mirrorOf(), first).catch((err: Error) => err)
      if (!(files instanceof Error)) assert.deepEqual(files, good)
      assert.deepEqual(await filesOf(mirrorOf(), first), good)
    }
    assert.equal(stage.warnings.length, damages.length, stage.warnings.join('\n'))
  })

  it('gives no content that was not committed, even where git itself does not notice', async () => {
    await filesOf(mirrorOf(), first)
    const dir = await repositoryDir()
    for (const pack of await packs()) {
      const aside = join(stage.folder, 'pack')
      await rename(pack, aside)
      await rm(pack.replace(/pack$/, 'idx'))
      await stage.run('sh', ['-c', `git --git-dir '${dir}' unpack-objects -q < '${aside}'`])
    }
    const oid = (await repository.git(['rev-parse', `${first}:a.txt`])).trim()
    const object = join(dir, 'objects', oid.slice(0, 2), oid.slice(2))
    await rm(object)
    await writeFile(object, deflateSync('blob 3\0evl'))
    const err = await failureOf(filesOf(mirrorOf(), first))
    assert.match(err.message, new RegExp(`object ${oid} is not what was committed`))
    assert.equal((await filesOf(mirrorOf(), first))['a.txt'], 'one')
  })

  it('is made anew when it is no repository any more', async () => {
    const good = await filesOf(mirrorOf(), first)
    for (const name of ['config', 'HEAD', 'objects']) {
      await rm(join(await repositoryDir(), name), { recursive: true })
      if (name === 'config') await writeFile(join(await repositoryDir(), name), '[nonsense')
      await filesOf(mirrorOf(), second).catch(() => undefined)
      assert.deepEqual(await filesOf(mirrorOf(), first), good, name)
    }
  })

  it('does not mind what processes that were killed have left behind', async () => {
    await filesOf(mirrorOf(), first)
    const dir = await repositoryDir()
    const rubbish = ['shallow.lock', 'config.lock', 'HEAD.lock', 'objects/pack/tmp_pack_x', 'objects/pack/pack-x.keep']
    for (const name of rubbish) await writeFile(join(dir, name), '')
    await writeFile(join(dir, `refs/openflux/keep/${second}.lock`), '')
    const dead = { machine: 'elsewhere', pid: 1, started: '', nonce: 'x' }
    await writeFile(join(dir, '../lock'), JSON.stringify(dead))
    await utimes(join(dir, '../lock'), 0, 0)
    assert.equal((await filesOf(mirrorOf(), second))['a.txt'], 'two')
    for (const name of rubbish) await assert.rejects(stat(join(dir, name)), /ENOENT/, name)
    assert.deepEqual(stage.warnings, [], 'what was there need not be fetched again')
  })

  it('ends at its limit, names it, and leaves nothing', async () => {
    const large = await repository.commit({ 'large.bin': randomBytes(4_000_000) }, 'large')
    for (let i = 0; i < 2; i++) {
      const err = await failureOf(mirrorOf().fetchCommit({ sha: large }, signal))
      assert.equal(err.reason, 'GitOperationFailed')
      assert.match(err.message, /larger than 1000000 bytes \(--git-max-repository-size\)$/)
    }
    assert.equal(await fetches(), 1, 'the bytes were fetched again')
    await assert.rejects(stat(await repositoryDir()), /ENOENT/)
    assert.equal((await filesOf(mirrorOf(), first))['a.txt'], 'one')
  })

  it('ends at its limit as soon as that is reached, not when all has come', async () => {
    const large = await repository.commit({ 'large.bin': randomBytes(4_000_000) }, 'large')
    stage.server.behaviour.stallBytes = 2_000_000
    const err = await failureOf(mirrorOf().fetchCommit({ sha: large }, signal))
    assert.match(err.message, /--git-max-repository-size/)
    await eventually(() => stage.server.running() === 0)
  })

  it('starts over when only its past makes it too large', async () => {
    const shas: string[] = []
    for (let i = 0; i < 5; i++) shas.push(await repository.commit({ 'b.bin': randomBytes(300_000) }, `${i}`))
    for (const sha of shas) await filesOf(mirrorOf(), sha)
    assert.ok(stage.warnings.some((w) => /larger than/.test(w)))
  })

  it('keeps the commits used last, in a few packs', async () => {
    const mirror = mirrorOf(stage.open({ maxCommits: 5, maxPacks: 8, maxRepositoryBytes: 1e9 }))
    const held = await mirror.fetchCommit({ sha: first }, signal)
    const shas: string[] = []
    for (let i = 0; i < 12; i++) shas.push(await repository.commit({ [`${i}.txt`]: `${i}` }, `${i}`))
    for (const sha of shas) await filesOf(mirror, sha)
    const kept = await readdir(join(await repositoryDir(), 'refs/openflux/keep'))
    assert.deepEqual(kept.toSorted(), [first, ...shas.slice(-5)].toSorted())
    await eventually(async () => (await packs()).length <= 8)
    held.release()
    assert.equal(Object.keys(await filesOf(mirror, shas.at(-1)!)).length, 14)
  })

  it('keeps nothing of a pack that breaks off', async () => {
    await filesOf(mirrorOf(), first)
    const next = await repository.commit({ 'c.bin': randomBytes(200_000) }, 'next')
    stage.server.behaviour.truncateBytes = 50_000
    assert.equal((await failureOf(mirrorOf().fetchCommit({ sha: next }, signal))).reason, 'GitOperationFailed')
    stage.server.behaviour.truncateBytes = undefined
    assert.deepEqual(
      (await readdir(join(await repositoryDir(), 'objects/pack'))).filter((n) => n.startsWith('tmp')),
      [],
    )
    assert.equal((await filesOf(mirrorOf(), next))['a.txt'], 'two')
    assert.deepEqual(stage.warnings, [], 'the mirror was not at fault')
  })

  for (const protocolV2 of [true, false]) {
    it(`reads a repository that is shallow itself (version ${protocolV2 ? 2 : 0})`, async () => {
      stage.server.behaviour.protocolV2 = protocolV2
      const copy = join(stage.server.root, 'shallow.git')
      await stage.run('git', ['clone', '--quiet', '--bare', '--depth=1', `file://${repository.dir}`, copy])
      const mirror = stage.mirrors.mirrorFor(`${stage.server.url}/shallow.git`, anonymous)
      const refs = await mirror.remote.listRefs(
        { prefixes: ['refs/'], keep: (name) => name.startsWith('refs/') },
        signal,
      )
      assert.deepEqual(refs, [{ name: 'refs/heads/main', oid: second }])
      assert.equal((await filesOf(mirror, second))['a.txt'], 'two')
      assert.equal(await mirror.contains({ ref: 'refs/heads/main', sha: second }, first, signal), false)
    })
  }

  it('finds a repository that has moved, also where only a commit is wanted', async () => {
    const mirror = mirrorOf()
    await filesOf(mirror, first)
    const elsewhere = await startGitServer({ repositories: { 'app.git': repository.dir } })
    try {
      stage.server.behaviour.redirect = { status: 301, location: `${elsewhere.url}*` }
      assert.equal((await filesOf(mirror, second))['a.txt'], 'two')
      assert.equal(await urlForGit(mirror), `${elsewhere.url}/app.git`)
      // And back again: where it was is nothing any more.
      stage.server.behaviour.redirect = undefined
      elsewhere.behaviour.redirect = { status: 404, location: '' }
      const third = await repository.commit({ 'a.txt': 'three' }, 'third')
      assert.equal((await filesOf(mirror, third))['a.txt'], 'three')
      assert.equal(await urlForGit(mirror), url)
    } finally {
      await elsewhere.stop()
    }
  })

  it('asks who the server is before a fetch when it has not done so for long', async () => {
    const requestsFor = async (sha: string) => {
      stage.server.reset()
      await filesOf(mirrorOf(), sha)
      return stage.server.requests().requests
    }
    await mirrorOf().remote.greet(0, signal)
    const known = await requestsFor(first)
    const now = performance.now.bind(performance)
    performance.now = () => now() + 3_700_000
    try {
      assert.equal(await requestsFor(second), known + 2)
    } finally {
      performance.now = now
    }
  })

  it('gives git no configuration but its own, and credentials by the environment alone', async () => {
    process.env['GIT_SSH_COMMAND'] = 'touch x'
    stage.server.behaviour.auth = { user: 'me', password: 'hunter2' }
    const me = accessFromSecret({ username: Buffer.from('me'), password: Buffer.from('hunter2') }, 'ns/n')!
    await stage.mirrors.mirrorFor(url, me).fetchCommit({ sha: first }, signal)
    delete process.env['GIT_SSH_COMMAND']
    const environment = variablesOf(await stage.lastEnvironment())
    for (const name of ['PATH', 'PWD', 'OLDPWD', 'SHLVL', '_']) delete environment[name] // the last four are the shell's
    assert.deepEqual(environment, {
      HOME: join(stage.cacheFolder, 'home'),
      LC_ALL: 'C',
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_TERMINAL_PROMPT: '0',
      GIT_ALLOW_PROTOCOL: 'http:https',
      GIT_NO_LAZY_FETCH: '1',
      GIT_NO_REPLACE_OBJECTS: '1',
      GIT_ALLOC_LIMIT: '256m',
      ...configuration({ ...settings, [`http.${url}.extraHeader`]: `Authorization: ${me.authorization}` }),
    })
    assert.doesNotMatch((await stage.processes()).join('\n'), /hunter2|Basic/)
    assert.deepEqual(await readdir(join(stage.cacheFolder, 'home')), [])
    const stored = await stage
      .run('grep', ['-rlE', `hunter2|${me.authorization}`, stage.cacheFolder])
      .catch(() => 'nothing')
    assert.equal(stored, 'nothing')
  })
})

const settings = {
  'core.hooksPath': '/dev/null',
  'core.fsmonitor': 'false',
  'credential.helper': '',
  'protocol.version': '2',
  'http.followRedirects': 'false',
  'transfer.fsckObjects': 'true',
  'transfer.bundleURI': 'false',
  'fetch.recurseSubmodules': 'false',
  'fetch.unpackLimit': '1',
  'core.bigFileThreshold': '16m',
  'gc.auto': '0',
  'maintenance.auto': 'false',
  'fetch.fsck.badDate': 'ignore',
  'fetch.fsck.badEmail': 'ignore',
  'fetch.fsck.badName': 'ignore',
  'fetch.fsck.badTimezone': 'ignore',
  'fetch.fsck.missingEmail': 'ignore',
  'fetch.fsck.missingNameBeforeEmail': 'ignore',
  'fetch.fsck.missingSpaceBeforeDate': 'ignore',
  'fetch.fsck.missingSpaceBeforeEmail': 'ignore',
  'fetch.fsck.multipleAuthors': 'ignore',
  'fetch.fsck.zeroPaddedDate': 'ignore',
  'fetch.fsck.zeroPaddedFilemode': 'ignore',
}

/** The variables that hand settings to git. */
function configuration(values: Record<string, string>): Record<string, string> {
  const variables: Record<string, string> = { GIT_CONFIG_COUNT: String(Object.keys(values).length) }
  for (const [i, [key, value]] of Object.entries(values).entries()) {
    variables[`GIT_CONFIG_KEY_${i}`] = key
    variables[`GIT_CONFIG_VALUE_${i}`] = value
  }
  return variables
}

/** What `env` has written. */
function variablesOf(text: string): Record<string, string> {
  const lines = text.split('\n').filter(Boolean)
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]))
}

/** The process group that a lock names. */
async function groupOf(cacheFolder: string): Promise<number | false> {
  const [name = ''] = await readdir(join(cacheFolder, 'mirrors'))
  const lock = await readFile(join(cacheFolder, 'mirrors', name, 'lock'), 'utf8').catch(() => '{}')
  const owner: { group?: { pid: number } } = JSON.parse(lock)
  return owner.group?.pid ?? false
}
