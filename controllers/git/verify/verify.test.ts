import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ReconcileError, StalledError } from '../../runtime/errors.ts'
import { failureOf } from '../test-support.ts'
import { openSigningStage, type PgpSigner, type Signer, type SigningStage } from './test-signers.ts'
import { makeVerifier, type Verified, type VerifyRequest } from './verify.ts'

interface Case {
  commit: { sha: string; raw: Buffer }
  tag?: { name: string; oid: string; raw: Buffer }
  keys: Record<string, string | Buffer>
  mode?: VerifyRequest['mode']
}

describe('the signature of a commit or tag', function () {
  this.timeout(120_000)
  let stage: SigningStage
  let alice: PgpSigner
  let bob: PgpSigner
  let carol: Signer & { file: string }
  let verifyCommit: ReturnType<typeof makeVerifier>
  let reads = 0

  before(async () => {
    stage = await openSigningStage()
    alice = await stage.pgp() // one after the other: gpg gets into its own way
    bob = await stage.pgp()
    carol = await stage.ssh()
    verifyCommit = makeVerifier({ path: process.env['PATH']!, run: join(stage.folder, 'run') })
  })
  after(() => stage.close())

  function verify({ commit, tag, keys, mode }: Case, signal = AbortSignal.timeout(60_000)): Promise<Verified> {
    const read = (raw: Buffer) => () => {
      reads++
      return Promise.resolve(raw)
    }
    return verifyCommit({
      mode,
      keys: Object.fromEntries(Object.entries(keys).map(([name, value]) => [name, Buffer.from(value)])),
      commit: { sha: commit.sha, read: read(commit.raw) },
      tag: tag && { name: tag.name, oid: tag.oid, read: read(tag.raw) },
      signal,
    })
  }

  /** Why it is refused: the message behind Flux's words. */
  async function refusal(asked: Case): Promise<string> {
    const err = await failureOf(verify(asked))
    assert.equal(err.condition, 'SourceVerified')
    assert.equal(err.reason, asked.mode?.startsWith('Tag') ? 'InvalidTagSignature' : 'InvalidCommitSignature')
    const [, why] = /^signature verification of (?:commit '[0-9a-f]{40}'|tag '[^']+') failed: (.*)$/.exec(err.message)!
    return why!
  }

  const alter = (commit: Case['commit'], from: string | RegExp, to: string) => {
    const text = commit.raw.toString('latin1')
    const altered = text.replace(from, to)
    assert.notEqual(altered, text)
    // Under an id of its own: two commits of one second may be the same one, whose success is remembered.
    const sha = createHash('sha1').update(altered, 'latin1').digest('hex')
    return { sha, raw: Buffer.from(altered, 'latin1') }
  }

  it('is told by the id of a PGP key', async () => {
    const commit = await stage.commit(alice)
    const { message, mode } = await verify({ commit, keys: { 'a.asc': await alice.publicKey() }, mode: 'head' })
    assert.equal(message, `verified signature of\n\t- commit '${commit.sha}' with key '${alice.shown}'`)
    assert.equal(mode, 'HEAD')
  })

  it('is told by the fingerprint of an SSH key, of any type', async () => {
    for (const signer of [carol, await stage.ssh('rsa', '-b', '2048'), await stage.ssh('ecdsa', '-b', '384')]) {
      const commit = await stage.commit(signer)
      const { message } = await verify({ commit, keys: { 'c.sshpub': await signer.publicKey() } })
      assert.equal(message, `verified signature of\n\t- commit '${commit.sha}' with key '${signer.shown}'`)
    }
    assert.deepEqual(await readdir(join(stage.folder, 'run')), [])
  })

  it('may be that of the tag, or of both', async () => {
    const commit = await stage.commit(carol)
    const tag = { name: 'v1.0.0', ...(await stage.tag(alice, 'v1.0.0', commit.sha)) }
    const keys = { 'a.asc': await alice.publicKey(), 'c.sshpub': await carol.publicKey() }
    const tagLine = `\n\t- tag 'v1.0.0@${tag.oid}' with key '${alice.shown}'`
    const commitLine = `\n\t- commit '${commit.sha}' with key '${carol.shown}'`
    assert.deepEqual(await verify({ commit, tag, keys, mode: 'Tag' }), {
      message: `verified signature of${tagLine}`,
      mode: 'Tag',
    })
    assert.equal(
      (await verify({ commit, tag, keys, mode: 'TagAndHEAD' })).message,
      `verified signature of${tagLine}${commitLine}`,
    )
    const sshTag = { name: 'v2', ...(await stage.tag(carol, 'v2', commit.sha)) }
    assert.match((await verify({ commit, tag: sshTag, keys, mode: 'Tag' })).message, /key 'SHA256:/)
  })

  it('is asked of a tag only where there is one, and where it can have one', async () => {
    const commit = await stage.commit(alice)
    const keys = { 'a.asc': await alice.publicKey() }
    const stalled = await failureOf(verify({ commit, keys, mode: 'TagAndHEAD' }))
    assert.ok(stalled instanceof StalledError)
    assert.deepEqual(
      [stalled.reason, stalled.message],
      ['InvalidVerificationMode', "cannot verify tag object's signature if a tag reference is not specified"],
    )
    const lightweight = { name: 'v3', oid: commit.sha, raw: commit.raw }
    const annotated = { name: 'v3', ...(await stage.tag(undefined, 'v3', commit.sha)) }
    for (const tag of [lightweight, annotated]) {
      const { reason, message } = await failureOf(verify({ commit, tag, keys, mode: 'Tag' }))
      assert.deepEqual(
        [reason, message],
        ['InvalidGitObject', "cannot verify signature of tag 'v3' since it is not signed"],
      )
    }
  })

  it('does not pass for that of another tag or commit', async () => {
    const [commit, other] = [await stage.commit(alice, 'one'), await stage.commit(alice, 'other')]
    const keys = { 'a.asc': await alice.publicKey() }
    const old = await stage.tag(alice, 'v0.9.0', commit.sha)
    const renamed = { name: 'v9.9.9', ...old }
    assert.equal(
      await refusal({ commit, tag: renamed, keys, mode: 'Tag' }),
      "the tag object is of another tag, 'v0.9.0'",
    )
    const elsewhere = { name: 'v0.9.0', ...old }
    assert.match(
      await refusal({ commit: other, tag: elsewhere, keys, mode: 'Tag' }),
      /^the tag object is not of commit/,
    )
  })

  it('counts with any of the keys, in whatever entries they are', async () => {
    const commit = await stage.commit(bob)
    const [a, b] = [await alice.publicKey(), await bob.publicKey()]
    const binary = Buffer.from(b.split('\n\n')[1]!.split('\n=')[0]!, 'base64')
    const both = await stage.gpg('--armor', '--export', alice.fingerprint, bob.fingerprint)
    const rest = { 'z.sshpub': `# ours\n\n${await carol.publicKey()}` }
    for (const keys of [
      { 'all.asc': both },
      { 'all.asc': `a:\n${a}\nb:\n${b}` },
      { 'b.asc': binary },
      { a, b, junk: '?' },
    ]) {
      assert.match((await verify({ commit, keys: { ...keys, ...rest } })).message, new RegExp(`key '${bob.shown}'`))
    }
  })

  it('is refused where the keys do not fit', async () => {
    const [byAlice, byCarol] = [await stage.commit(alice), await stage.commit(carol)]
    const [a, b, c] = [await alice.publicKey(), await bob.publicKey(), await carol.publicKey()]
    assert.equal(
      await refusal({ commit: byAlice, keys: { 'b.asc': b } }),
      `no key of the secret has the id '${alice.shown}'`,
    )
    const other = await stage.ssh()
    assert.equal(
      await refusal({ commit: byCarol, keys: { 'o.sshpub': await other.publicKey() } }),
      `no key of the secret has the fingerprint '${carol.shown}'`,
    )
    assert.equal(
      await refusal({ commit: byAlice, keys: { 'c.sshpub': c } }),
      'PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)',
    )
    assert.equal(
      await refusal({ commit: byCarol, keys: { 'a.asc': a } }),
      'SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)',
    )
    assert.equal(await refusal({ commit: await stage.commit(undefined), keys: { 'a.asc': a } }), 'it is not signed')
  })

  it('is refused where anything has been altered', async () => {
    const keys = { 'a.asc': await alice.publicKey(), 'c.sshpub': await carol.publicKey() }
    const [byAlice, byCarol] = [await stage.commit(alice), await stage.commit(carol)]
    const cases: [Case['commit'], RegExp][] = [
      [alter(byAlice, /signed\n$/, 'Signed\n'), /^key '[0-9A-F]{16}': Signed digest did not match$/],
      [alter(byAlice, /^tree ..../, 'tree 1234'), /Signed digest did not match/],
      [alter(byAlice, /signed\n$/, 'signed\r\n'), /Signed digest did not match/],
      [alter(byAlice, 'A Tester', 'A Taster'), /Signed digest did not match/],
      [alter(byAlice, /\ngpgsig /, '\nencoding latin1\ngpgsig '), /Signed digest did not match/],
      [alter(byCarol, /signed\n$/, 'signed\n\n'), /^key 'SHA256:[^']+': the signature is not of this content$/],
      [alter(byCarol, 'A Tester', 'A Taster'), /the signature is not of this content/],
      // The last characters of the signature itself, which are followed by padding and checksum.
      [alter(byCarol, /....(=*\n -----END)/, 'AAAA$1'), /the signature is not of this content/],
      [alter(byAlice, /(BEGIN PGP SIGNATURE-----\n \n ....)..../, '$1AAAA'), /./],
    ]
    for (const [commit, why] of cases) assert.match(await refusal({ commit, keys }), why)
  })

  it('covers every byte of the commit', async () => {
    const { sha, raw } = await stage.commit(alice)
    const keys = { 'a.asc': await alice.publicKey() }
    const from = raw.indexOf('gpgsig ')
    const to = raw.indexOf('-----END PGP SIGNATURE-----')
    for (const at of raw.keys().filter((i) => i < from || i > to)) {
      const altered = Buffer.from(raw)
      altered[at]! ^= 1
      const err = await failureOf(verify({ commit: { sha: `${sha} ${at}`, raw: altered }, keys }))
      assert.equal(err.reason, 'InvalidCommitSignature', `byte ${at}`)
    }
  })

  it('is refused where it is not one that git would have made', async () => {
    const keys = { 'a.asc': await alice.publicKey(), 'c.sshpub': await carol.publicKey() }
    const commit = await stage.commit(alice)
    const signature = /gpgsig [^]*?-----END PGP SIGNATURE-----\n/.exec(commit.raw.toString())![0]
    const armored = /-----BEGIN[^]*-----END PGP SIGNATURE-----/.exec(signature)![0]
    const replaced = (text: string) => alter(commit, armored, text.replaceAll('\n', '\n '))
    const message = await stage
      .gpg('--armor', '--clearsign', join(stage.repository.dir, 'HEAD'))
      .then(() => readFile(join(stage.repository.dir, 'HEAD.asc'), 'utf8'))
    const cases: [string, Case['commit'], RegExp][] = [
      ['two', alter(commit, signature, signature + signature), /more than one signature/],
      ['a look-alike', alter(commit, 'gpgsig ', 'gpgsigx '), /only looks like a signature/],
      [
        'x509',
        replaced('-----BEGIN SIGNED MESSAGE-----\nMII=\n-----END SIGNED MESSAGE-----'),
        /^unsupported signature type: x509$/,
      ],
      ['anything', replaced('hello'), /^unsupported signature type: unknown$/],
      ['nothing', replaced(''), /^unsupported signature type: unknown$/],
      ['an empty armor', replaced('-----BEGIN PGP SIGNATURE-----\n\n-----END PGP SIGNATURE-----'), /./],
      ['half of one', replaced(armored.slice(0, 80)), /^the signature is not well-formed$/],
      ['more behind it', replaced(`${armored}\nand this`), /^the signature is not well-formed$/],
      ['two in one', replaced(`${armored}\n${armored}`), /^the signature is not well-formed$/],
      ['a key', replaced((await alice.publicKey()).replaceAll('PUBLIC KEY BLOCK', 'SIGNATURE').trim()), /./],
      [
        'a signed text',
        replaced(message.slice(message.indexOf('-----BEGIN PGP SIGNATURE')).trim()),
        /not of a kind that git makes/,
      ],
      [
        '100 kB',
        replaced(`-----BEGIN PGP SIGNATURE-----\n\n${'A'.repeat(100_000)}\n-----END PGP SIGNATURE-----`),
        /longer than 65536/,
      ],
      [
        'many packets',
        replaced(
          `-----BEGIN PGP SIGNATURE-----\n\n${Buffer.alloc(40_000, Buffer.of(0xc2, 0)).toString('base64')}\n-----END PGP SIGNATURE-----`,
        ),
        /more than 16 packets/,
      ],
      [
        'garbage for SSH',
        replaced('-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----'),
        /not well-formed/,
      ],
      [
        'a length that lies',
        replaced('-----BEGIN SSH SIGNATURE-----\nU1NIU0lHAAAAAX////8=\n-----END SSH SIGNATURE-----'),
        /ends too early/,
      ],
      [
        'a version to come',
        replaced('-----BEGIN SSH SIGNATURE-----\nU1NIU0lHAAAACQAAAAA=\n-----END SSH SIGNATURE-----'),
        /version 9/,
      ],
      ['no message', { sha: commit.sha, raw: commit.raw.subarray(0, 60) }, /not a well-formed commit/],
      [
        'no tree',
        { sha: commit.sha, raw: Buffer.concat([Buffer.from('x y\n'), commit.raw]) },
        /not a well-formed commit/,
      ],
      ['zeros', { sha: commit.sha, raw: Buffer.alloc(1_000_000) }, /not a well-formed commit/],
    ]
    for (const [what, odd, why] of cases) assert.match(await refusal({ commit: odd, keys }), why, what)
  })

  it('of files, not made for git, is refused', async () => {
    const commit = await stage.commit({ ...carol, settings: await forNamespace(carol.file) })
    assert.match(await refusal({ commit, keys: { 'c.sshpub': await carol.publicKey() } }), /was not made for git/)
  })

  /** Settings with an ssh-keygen that signs for another purpose. */
  async function forNamespace(file: string): Promise<string[]> {
    const program = join(stage.folder, 'ssh-keygen-file')
    await writeFile(
      program,
      '#!/bin/sh\nfor a; do shift; [ "$a" = git ] && a=file; set -- "$@" "$a"; done\nexec ssh-keygen "$@"\n',
      {
        mode: 0o755,
      },
    )
    return ['-c', 'gpg.format=ssh', '-c', `user.signingkey=${file}`, '-c', `gpg.ssh.program=${program}`]
  }

  it('of an expired key is refused until the key is renewed', async () => {
    const dora = await stage.pgp({ time: '20200101T000000!', expires: '1y' })
    const commit = await stage.commit(dora)
    assert.match(await refusal({ commit, keys: { 'd.asc': await dora.publicKey() } }), /expired/)
    const before = await dora.publicKey()
    await stage.gpg('--quick-set-expire', dora.fingerprint, '0')
    const after = await dora.publicKey()
    assert.match((await verify({ commit, keys: { 'd.asc': after } })).message, new RegExp(dora.shown))
    assert.match((await verify({ commit, keys: { 'a.asc': before, 'b.asc': after } })).message, new RegExp(dora.shown))
  })

  it('of a revoked key is refused, also where it was made before', async () => {
    const eve = await stage.pgp()
    const commit = await stage.commit(eve)
    const before = await eve.publicKey()
    await verify({ commit, keys: { 'e.asc': before } })
    const file = join(stage.folder, 'gpg', 'openpgp-revocs.d', `${eve.fingerprint}.rev`)
    await writeFile(file, (await readFile(file, 'utf8')).replace(':-----BEGIN', '-----BEGIN'))
    await stage.gpg('--import', file)
    assert.match(await refusal({ commit, keys: { 'e.asc': await eve.publicKey() } }), /revoked/)
  })

  it('by a subkey is told by the id of its primary key', async () => {
    const frank = await stage.pgp()
    await stage.gpg('--quick-add-key', frank.fingerprint, 'ed25519', 'sign', 'never')
    const subkey = (await stage.gpg('--with-colons', '--list-keys', frank.fingerprint))
      .split('\n')
      .find((row) => row.startsWith('sub:'))!
      .split(':')[4]!
    const settings = [...frank.settings, '-c', `user.signingkey=${subkey}!`]
    const commit = await stage.commit({ ...frank, settings })
    const { message } = await verify({ commit, keys: { 'f.asc': await frank.publicKey() } })
    assert.match(message, new RegExp(`key '${frank.shown}'$`))
  })

  it('by a weak hash is refused', async () => {
    const grace = await stage.pgp({ algorithm: 'rsa2048', arguments: ['--digest-algo', 'SHA1'] })
    const commit = await stage.commit(grace)
    assert.match(
      await refusal({ commit, keys: { 'g.asc': await grace.publicKey() } }),
      /Insecure message hash algorithm: SHA1/,
    )
  })

  it('is not looked for where a key cannot be read', async () => {
    const commit = await stage.commit(alice)
    const good = { 'a.asc': await alice.publicKey(), 'c.sshpub': await carol.publicKey() }
    const secret = await stage.gpg('--armor', '--export-secret-keys', bob.fingerprint)
    const [type, base64] = (await carol.publicKey()).split(' ')
    const weak = await stage.ssh('rsa', '-b', '1024')
    const cases: [string, string | Buffer, RegExp][] = [
      ['x.asc', 'hello', /'x\.asc': ./],
      ['x.asc', '', /'x\.asc': ./],
      ['x.asc', good['a.asc'].slice(0, 200), /no complete PGP public key block/],
      ['x.asc', good['a.asc'].slice(0, 37).repeat(28_000), /no complete PGP public key block/],
      ['x.asc', good['a.asc'].repeat(1001), /more than 1000 PGP public key blocks/],
      ['x.asc', good['a.asc'].replace(/(\n\n.{8}).{8}/, '$1AAAAAAAA'), /'x\.asc': ./],
      ['x.asc', Buffer.alloc(40_000, Buffer.of(0xc6, 0)), /'x\.asc': it holds more than 10000 packets/],
      ['x.asc', secret, /holds a private key/],
      ['x.sshpub', 'hello', /'x\.sshpub': line 1: it must start with one of the key types ssh-ed25519, /],
      ['x.sshpub', '\n'.repeat(10_000), /'x\.sshpub': it has more than 10000 lines/],
      ['x.sshpub', `\n# fine\n${type} !!!`, /line 3: the ssh-ed25519 key is not in base64/],
      ['x.sshpub', `ssh-rsa ${base64}`, /line 1: the key is not of the type ssh-rsa/],
      ['x.sshpub', `cert-authority ${type} ${base64}`, /line 1: it must start with/],
      ['x.sshpub', `command="touch /tmp/x" ${type} ${base64}`, /line 1: it must start with/],
      ['x.sshpub', `${type} AAAA`, /line 1: it ends too early/],
      ['x.sshpub', await weak.publicKey(), /an RSA key of 1024 bits is too weak/],
    ]
    for (const [name, content, why] of cases) {
      const err = await failureOf(verify({ commit, keys: { ...good, [name]: content } }))
      assert.deepEqual([err.reason, err.condition], ['VerificationError', 'SourceVerified'])
      assert.match(err.message, /^public keys secret error: failed to read /)
      assert.match(err.message, why)
      assert.ok(err.message.length < 500)
    }
  })

  it('is checked once for the same keys, and again when they have changed', async () => {
    const commit = await stage.commit(alice)
    const [a, b] = [await alice.publicKey(), await bob.publicKey()]
    await verify({ commit, keys: { 'a.asc': a } })
    const before = reads
    await verify({ commit, keys: { 'a.asc': a } })
    assert.equal(reads, before)
    assert.match(await refusal({ commit, keys: { 'a.asc': b } }), /no key of the secret/)
    assert.match(await refusal({ commit, keys: { 'a.asc': b } }), /no key of the secret/)
    assert.equal(reads, before + 2)
    await verify({ commit, keys: { 'a.asc': a, 'b.asc': b } })
    assert.equal(reads, before + 3)
  })

  it('is given up with the signal, and leaves no file', async () => {
    const commit = await stage.commit(carol)
    const keys = { 'c.sshpub': await carol.publicKey() }
    const abort = new AbortController()
    abort.abort(new ReconcileError('Timeout', 'enough'))
    await assert.rejects(verify({ commit, keys }, abort.signal), /enough/)
    assert.deepEqual(await readdir(join(stage.folder, 'run')), [])
  })
})
