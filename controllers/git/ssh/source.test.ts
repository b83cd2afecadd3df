import assert from 'node:assert/strict'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Repository } from '../../../e2e/git-repository.ts'
import { makeSshKey } from '../../../e2e/ssh-server.ts'
import { StalledError } from '../../runtime/errors.ts'
import { defaultListingLimits as listingLimits } from '../content/listing.ts'
import { makeMirrors } from '../mirror/mirrors.ts'
import { makeGitSource } from '../source.ts'
import { contextOf, failureOf, objectOf, readAll } from '../test-support.ts'
import type { GitRepositoryRef } from '../types.ts'
import { openSshStage, type SshStage } from './test-support.ts'

describe('a GitRepository over ssh', function () {
  this.timeout(120_000)
  let folder: string
  let stage: SshStage
  let repository: Repository
  let url: string
  let first: string
  let second: string

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'openflux-ssh-source-'))
    stage = await openSshStage()
    repository = await stage.server.repository('app.git')
    url = `${stage.server.url}/app.git`
    first = await repository.commit({ 'a.txt': 'one' }, 'first')
    await repository.tag('v1.0.0', { message: 'annotated' })
    second = await repository.commit({ 'a.txt': 'two' }, 'second')
  })
  after(async () => {
    await stage.close()
    await rm(folder, { recursive: true, force: true })
  })

  function secretOf(data: Record<string, string> = {}) {
    return { keys: { identity: stage.key.identity, known_hosts: stage.server.knownHosts(), ...data } }
  }

  /** One pass with mirrors of its own. */
  async function pass(ref: GitRepositoryRef, spec: object = {}, secrets = secretOf()) {
    const cacheFolder = join(folder, String(Math.random()))
    const source = makeGitSource({ mirrors: makeMirrors({ cacheFolder }), listingLimits })
    const obj = objectOf({ url, ref, secretRef: { name: 'keys' }, ...spec })
    const ctx = contextOf(undefined, secrets)
    const resolved = await source.resolve(obj, ctx)
    const fetched = await source.fetch(obj, resolved, ctx)
    try {
      const left = await readdir(join(cacheFolder, 'run')).catch(() => [])
      return { revision: resolved.revision, files: await readAll(fetched.entries), left }
    } finally {
      await fetched.close?.()
    }
  }

  for (const [ref, revision, content] of [
    [{ branch: 'main' }, () => `main@sha1:${second}`, 'two'],
    [{ semver: '>=1.0.0' }, () => `v1.0.0@sha1:${first}`, 'one'],
    [{ branch: 'main', commit: () => first }, () => `main@sha1:${first}`, 'one'],
  ] as const) {
    it(`is taken by ${Object.keys(ref).join(' and ')}`, async () => {
      const given = 'commit' in ref ? { ...ref, commit: ref.commit() } : ref
      assert.deepEqual(await pass(given), { revision: revision(), files: { 'a.txt': content }, left: [] })
    })
  }

  it('is taken with an encrypted key', async () => {
    const key = await makeSshKey({ passphrase: 'hunter2' })
    await stage.server.authorize(stage.key, key)
    const result = await pass({ branch: 'main' }, {}, secretOf({ identity: key.identity, password: 'hunter2' }))
    assert.equal(result.files['a.txt'], 'two')
  })

  it('needs a Secret with keys, and says what is wrong with it', async () => {
    const before = stage.server.connections()
    const locked = (await makeSshKey({ passphrase: 'hunter2' })).identity
    for (const [{ spec = {}, secret }, why] of [
      [{ spec: { secretRef: undefined }, secret: secretOf() }, /: invalid 'ssh' auth option: 'identity' is required$/],
      [{ secret: secretOf({ known_hosts: '' }) }, /: invalid 'ssh' auth option: 'known_hosts' is required$/],
      [{ secret: secretOf({ identity: 'garbage' }) }, /: 'identity' in secret 'ns\/keys' is no private key/],
      [
        { secret: secretOf({ identity: locked }) },
        /: SSH identity key is encrypted but no 'password' field was provided in the secret 'ns\/keys'$/,
      ],
      [{ secret: secretOf({ known_hosts: stage.server.knownHosts().replace(/\S+/, 'x') }) }, /: knownhosts: no entry/],
    ] as [{ spec?: object; secret: ReturnType<typeof secretOf> }, RegExp][]) {
      const err = await failureOf(pass({ branch: 'main' }, spec, secret))
      assert.equal(err.reason, 'AuthenticationFailed')
      assert.match(err.message, /^failed to configure authentication options: /)
      assert.match(err.message, why)
    }
    assert.equal(stage.server.connections(), before)
  })

  it('stalls on an address that ssh or git could take for an option', async () => {
    for (const hostile of ['ssh://-oProxyCommand=touch/x', 'ssh://-oProxyCommand=x@host/y', 'git@host:path']) {
      const err = await failureOf(pass({ branch: 'main' }, { url: hostile }))
      assert.ok(err instanceof StalledError)
      assert.equal(err.reason, 'URLInvalid')
    }
  })
})
