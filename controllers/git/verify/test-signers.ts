import { execFile } from 'node:child_process'
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { makeRepository, type Repository } from '../../../e2e/git-repository.ts'
import { temporaryFolder } from '../../../e2e/tools/temporary.ts'

const run = promisify(execFile)

/** Someone who signs commits and tags with the real programs. */
export interface Signer {
  /** The settings that make git sign as them. */
  settings: string[]
  /** The id or fingerprint that a message shows. */
  shown: string
  /** The public key as it goes into the Secret. */
  publicKey(): Promise<string>
}

/** A PGP key pair in the test's own GNUPGHOME. */
export interface PgpSigner extends Signer {
  fingerprint: string
}

/** Keys, and a repository to sign in. For tests. */
export interface SigningStage {
  folder: string
  repository: Repository
  /** `time` (ISO 8601 basic, e.g. `20200101T000000`) is when it is made and when it signs; `expires` as in `gpg --quick-generate-key`. */
  pgp(options?: { algorithm?: string; time?: string; expires?: string; arguments?: string[] }): Promise<PgpSigner>
  /** Runs gpg on the stage's keys; gives its standard output. */
  gpg(...args: string[]): Promise<string>
  ssh(type?: string, ...more: string[]): Promise<Signer & { file: string }>
  /** The bytes of a commit that `signer` has signed, and its id. */
  commit(signer: Signer | undefined, message?: string): Promise<{ sha: string; raw: Buffer }>
  /** The same of a tag object of a commit. */
  tag(signer: Signer | undefined, name: string, sha: string): Promise<{ oid: string; raw: Buffer }>
  close(): Promise<void>
}

/** Makes a stage without any keys. */
export async function openSigningStage(): Promise<SigningStage> {
  const folder = await temporaryFolder()
  const repository = await makeRepository(join(folder, 'app.git'))
  const tree = (await repository.git(['mktree'], '')).trim()
  const env = { PATH: process.env['PATH'], LC_ALL: 'C', GNUPGHOME: join(folder, 'gpg') }
  await mkdir(env.GNUPGHOME, { mode: 0o700 })
  const unattended = ['--batch', '--no-tty', '--pinentry-mode', 'loopback', '--passphrase', '']
  const gpg = async (...args: string[]) => (await run('gpg', [...unattended, ...args], { env })).stdout
  let count = 0

  /** A program that git takes for gpg. */
  async function program(args: string[]): Promise<string> {
    const file = join(folder, `gpg-${++count}`)
    const command = ['gpg', ...unattended, ...args].map((arg) => `'${arg}'`).join(' ')
    await writeFile(file, `#!/bin/sh\nexport GNUPGHOME='${env.GNUPGHOME}'\nexec ${command} "$@"\n`)
    await chmod(file, 0o755)
    return file
  }

  async function pgp(options: Parameters<SigningStage['pgp']>[0] = {}): Promise<PgpSigner> {
    const { algorithm = 'ed25519', time, expires = 'never', arguments: more = [] } = options
    const clock = time ? ['--faked-system-time', time] : []
    const user = `Signer ${++count} <signer-${count}@example.com>`
    await gpg(...clock, '--quick-generate-key', user, algorithm, 'sign', expires)
    const rows = (await gpg('--with-colons', '--list-keys', user)).split('\n')
    const fingerprint = rows.find((row) => row.startsWith('fpr:'))!.split(':')[9]!
    const sign = await program([...clock, ...more])
    return {
      fingerprint,
      shown: fingerprint.slice(-16),
      settings: ['-c', `gpg.program=${sign}`, '-c', `user.signingkey=${fingerprint}`],
      publicKey: () => gpg('--armor', '--export', fingerprint),
    }
  }

  async function ssh(type = 'ed25519', ...more: string[]): Promise<Signer & { file: string }> {
    const file = join(folder, `ssh-${++count}`)
    await run('ssh-keygen', ['-q', '-t', type, '-N', '', '-C', 'a comment', '-f', file, ...more])
    const { stdout } = await run('ssh-keygen', ['-l', '-f', file])
    return {
      file,
      shown: stdout.split(' ')[1]!,
      settings: ['-c', 'gpg.format=ssh', '-c', `user.signingkey=${file}`],
      publicKey: () => readFile(`${file}.pub`, 'utf8'),
    }
  }

  const identity = ['-c', 'user.name=A Tester', '-c', 'user.email=tester@example.com']
  const read = async (type: string, oid: string) => Buffer.from(await repository.git(['cat-file', type, oid]))

  return {
    folder,
    repository,
    pgp,
    gpg,
    ssh,
    commit: async (signer, message = 'signed') => {
      const settings = signer ? [...signer.settings, 'commit-tree', '-S'] : ['commit-tree']
      const sha = (await repository.git([...identity, ...settings, '-m', message, tree])).trim()
      return { sha, raw: await read('commit', sha) }
    },
    tag: async (signer, name, sha) => {
      const settings = [...(signer?.settings ?? []), 'tag', signer ? '--sign' : '--annotate']
      await repository.git([...identity, ...settings, '--force', '-m', `version ${name}`, name, sha])
      const oid = (await repository.git(['rev-parse', `refs/tags/${name}`])).trim()
      return { oid, raw: await read('tag', oid) }
    },
    close: async () => {
      await run('gpgconf', ['--kill', 'all'], { env })
      await rm(folder, { recursive: true, force: true })
    },
  }
}
