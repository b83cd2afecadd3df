import assert from 'node:assert/strict'
import { openSigningStage, type SigningStage } from '../controllers/git/verify/test-signers.ts'
import { getCondition } from '../controllers/runtime/conditions.ts'
import { eventually } from '../controllers/runtime/eventually.ts'
import { addBystander, assertUntold, putSecret } from './bystander.ts'
import type { ControllerProcess } from './controller-process.ts'
import { type GitServer, startGitServer } from './git-server.ts'
import { makeSshKey, type SshServer, startSshServer } from './ssh-server.ts'
import { assertServes, Story, type StoredRepository } from './story.ts'

const passphrase = 'hunter2-correct-horse'

describe('hostile keys', () => {
  let story: Story
  let controller: ControllerProcess
  let stillServed: () => Promise<void>

  before(async () => {
    story = await Story.open()
    controller = await story.startController({ flags: ['--concurrent=4'] })
    stillServed = await addBystander(story)
  })
  after(() => story.close())

  /** Whatever is wrong with the keys of an object: the others are served as before. */
  afterEach(() => stillServed())

  describe('for ssh', () => {
    let server: SshServer
    before(async () => {
      server = await startSshServer()
      await (await server.repository('app.git')).commit({ 'app.yaml': 'a: 1\n' }, 'first')
    })
    after(() => server.stop())

    it('are refused without a question, and healed by another Secret', async () => {
      const [key, encrypted, stranger] = await Promise.all([makeSshKey(), makeSshKey({ passphrase }), makeSshKey()])
      await server.authorize(key, encrypted)
      const known_hosts = server.knownHosts()
      const changed = known_hosts.replace(/ssh-ed25519 \S+/, stranger.publicKey.split(' ', 2).join(' '))
      const cases: [string, Record<string, string>, RegExp][] = [
        ['locked', { identity: encrypted.identity, known_hosts }, /encrypted but no 'password' field was provided/],
        ['misread', { identity: encrypted.identity, known_hosts, password: 'not-it' }, /not the passphrase/],
        ['unknown', { identity: key.identity, known_hosts: `other.example ${stranger.publicKey}` }, /no entry for/],
        ['changed', { identity: key.identity, known_hosts: changed }, /knownhosts: key/],
        ['empty', { identity: key.identity, known_hosts: ' ' }, /'known_hosts' is required/],
        ['binary', { identity: '\0\u0001', known_hosts }, /'identity' is not text/],
      ]
      for (const [name, secret] of cases) {
        await putSecret(story, name, secret)
        await story.apply(name, { url: `${server.url}/app.git`, secretRef: { name } })
      }
      for (const [name, , message] of cases) {
        const object = await story.failed(name, message)
        assert.equal(getCondition(object, 'FetchFailed')?.reason, 'AuthenticationFailed')
        assert.equal(getCondition(object, 'Stalled'), undefined)
      }
      for (const [name] of cases) {
        await putSecret(story, name, { identity: encrypted.identity, known_hosts, password: passphrase })
        await assertServes((await story.ready(name)).status.artifact)
      }
    })
  })

  describe('for signatures', () => {
    let signers: SigningStage
    let server: GitServer
    before(async () => {
      signers = await openSigningStage()
      server = await startGitServer({ root: signers.folder })
    })
    after(async () => {
      await server.stop()
      await signers.close()
    })

    /** The condition of an object that keeps what it has because of its signature. */
    async function unverified(before: StoredRepository, reason: string, message: RegExp): Promise<void> {
      const { name } = before.metadata
      const object = await eventually(async () => {
        const found = await story.failed(name, message)
        return getCondition(found, 'SourceVerified')?.status === 'False' && found
      })
      assert.equal(getCondition(object, 'SourceVerified')?.reason, reason)
      assert.deepEqual(object.status?.artifact, before.status.artifact)
      await assertServes(before.status.artifact)
    }

    const moveTo = async (name: string, sha: string) => {
      await signers.repository.branch('main', sha)
      await story.request(name)
    }

    it('are compared anew for each commit and whenever they change, and what they do not vouch for is not stored', async () => {
      const [alice, mallory] = await Promise.all([signers.pgp(), signers.pgp()])
      const old = await signers.pgp({ time: '20200101T000000', expires: '1y' })
      const trusted = { 'alice.asc': await alice.publicKey(), 'old.asc': await old.publicKey() }
      const { sha } = await signers.commit(alice)
      await signers.repository.branch('main', sha)
      await putSecret(story, 'keys', trusted)
      const verify = { mode: 'HEAD', secretRef: { name: 'keys' } } as const
      await story.apply('signed', { url: `${server.url}/app.git`, verify })
      const before = await story.ready('signed', `main@sha1:${sha}`)
      assert.match(getCondition(before, 'SourceVerified')!.message, new RegExp(`with key '${alice.shown}'$`))
      for (const [signer, why] of [
        [undefined, /it is not signed$/],
        [mallory, new RegExp(`no key of the secret has the id '${mallory.shown}'$`)],
        [old, /expired/],
      ] as const) {
        await moveTo('signed', (await signers.commit(signer, `${why}`)).sha)
        await unverified(before, 'InvalidCommitSignature', why)
      }
      await moveTo('signed', sha)
      await story.ready('signed', `main@sha1:${sha}`)
      // The same revision, other keys.
      await putSecret(story, 'keys', { 'mallory.asc': await mallory.publicKey() })
      await unverified(before, 'InvalidCommitSignature', /no key of the secret/)
      await putSecret(story, 'keys', { 'alice.asc': 'nonsense' })
      await unverified(before, 'VerificationError', /public keys secret error: failed to read 'alice\.asc'/)
      await putSecret(story, 'keys', trusted)
      assert.deepEqual((await story.ready('signed', `main@sha1:${sha}`)).status.artifact, before.status.artifact)
    })

    it('that sign a commit do not make up for a tag that nobody has signed', async () => {
      const alice = await signers.pgp()
      const { sha } = await signers.commit(alice, 'tagged')
      await signers.tag(undefined, 'v1', sha)
      await putSecret(story, 'tag-keys', { 'alice.asc': await alice.publicKey() })
      const verify = { mode: 'TagAndHEAD', secretRef: { name: 'tag-keys' } } as const
      await story.apply('tagged', { url: `${server.url}/app.git`, ref: { tag: 'v1' }, verify })
      const object = await story.failed('tagged', /cannot verify signature of tag 'v1' since it is not signed/)
      assert.equal(getCondition(object, 'SourceVerified')?.reason, 'InvalidGitObject')
      assert.equal(object.status?.artifact, undefined)
      await signers.tag(alice, 'v1', sha)
      await story.request('tagged')
      await story.ready('tagged', `v1@sha1:${sha}`)
    })
  })

  it('are in no message', () => assertUntold(story, controller, [passphrase, 'not-it', 'PRIVATE KEY']))
})
