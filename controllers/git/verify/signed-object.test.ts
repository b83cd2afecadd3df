import assert from 'node:assert/strict'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { makeRepository, type Repository } from '../../../e2e/git-repository.ts'
import { temporaryFolder } from '../../../e2e/tools/temporary.ts'
import { signatureOfCommit, signatureOfTag } from './signed-object.ts'

const sha = '4b825dc642cb6eb9a060e54bf8d69288fbee4904'
const people = 'author A <a@x> 1700000000 +0000\ncommitter A <a@x> 1700000000 +0000'
const armored = '-----BEGIN PGP SIGNATURE-----\n\niHUE\n=abcd\n-----END PGP SIGNATURE-----'
const header = (name: string, text: string) => `${name} ${text.replaceAll('\n', '\n ')}\n`
const tag = `object ${sha}\ntype tree\ntag v1\ntagger A <a@x> 1700000000 +0000\n\n`

describe('what was signed', function () {
  this.timeout(60_000)
  let folder: string
  let repository: Repository

  before(async () => {
    folder = await temporaryFolder()
    repository = await makeRepository(join(folder, 'app.git'))
    // What git gives to gpg: the file with the signature as an argument, the rest on standard input.
    const script = `#!/bin/sh\nfor a; do [ -f "$a" ] && cp "$a" '${folder}/signature'; done\ncat > '${folder}/payload'\n`
    await writeFile(join(folder, 'gpg'), script, { mode: 0o755 })
  })
  after(() => rm(folder, { recursive: true, force: true }))

  async function givenByGit(type: 'commit' | 'tag', raw: Buffer): Promise<{ payload: Buffer; signature: string }> {
    const oid = (await repository.git(['hash-object', '--literally', '-t', type, '-w', '--stdin'], raw)).trim()
    const program = ['-c', `gpg.program=${join(folder, 'gpg')}`]
    await repository.git([...program, `verify-${type}`, oid]).catch(() => undefined) // nobody said that it is good
    const [payload, signature] = await Promise.all(['payload', 'signature'].map((name) => readFile(join(folder, name))))
    return { payload: payload!, signature: signature!.toString('latin1') }
  }

  const start = `tree ${sha}\nparent ${'1'.repeat(40)}\n${people}\n`
  const commits: [string, string][] = [
    ['plain', `${start}${header('gpgsig', `${armored}\n`)}\nmessage\n`],
    ['without a line feed behind the signature', `${start}${header('gpgsig', armored)}\nmessage\n`],
    ['with another encoding and bytes', `${start}encoding latin1\n${header('gpgsig', armored)}\nm\xe4\xff\r\n\n\nx`],
    ['of a merge of a signed tag', `${start}${header('mergetag', tag + armored)}${header('gpgsig', armored)}\nmerge\n`],
    ['with a header behind it', `${start}${header('gpgsig', armored)}${header('note', 'a\nb')}\nmessage`],
    [
      'that is signed under its other name too',
      `${start}${header('gpgsig', armored)}${header('gpgsig-sha256', armored)}\nx\n`,
    ],
    ['with a signature in the message', `${start}${header('gpgsig', armored)}\n\ngpgsig ${armored}\n`],
    ['without a message', `${start}${header('gpgsig', armored)}\n`],
  ]
  for (const [what, text] of commits) {
    it(`is what git gives to gpg, for a commit ${what}`, async () => {
      const raw = Buffer.from(text, 'latin1')
      const { payload, signature } = await givenByGit('commit', raw)
      const ours = signatureOfCommit(raw)!
      assert.equal(ours.payload.toString('latin1'), payload.toString('latin1'))
      assert.equal(ours.signature.trimEnd(), signature.trimEnd())
    })
  }

  const tags: [string, string][] = [
    ['plain', `${tag}version 1\n${armored}\n`],
    ['without a message', `${tag}${armored}\n`],
    ['that quotes a signature', `${tag}see\n${armored}\nand\n${armored}\n`],
    ['with bytes', `${tag}m\xe4\xff\r\n\n${armored}\n`],
  ]
  for (const [what, text] of tags) {
    it(`is what git gives to gpg, for a tag ${what}`, async () => {
      const raw = Buffer.from(text, 'latin1')
      const { payload, signature } = await givenByGit('tag', raw)
      const ours = signatureOfTag(raw)!
      assert.equal(ours.payload.toString('latin1'), payload.toString('latin1'))
      assert.equal(ours.signature, signature)
    })
  }
})
