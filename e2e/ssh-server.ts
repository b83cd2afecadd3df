import { execFile } from 'node:child_process'
import { chmod, chown, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { makeRepository, type Repository } from './git-repository.ts'
import { freePort } from './tools/port.ts'
import { startProcess } from './tools/process.ts'
import { prepareSshd } from './tools/sshd.ts'

/** A pair of keys, as ssh-keygen writes them. */
export interface SshKey {
  /** The private one. */
  identity: string
  /** One line of authorized_keys. */
  publicKey: string
}

export interface SshKeyOptions {
  type?: 'ed25519' | 'rsa' | 'ecdsa'
  passphrase?: string
  /** PEM is PKCS#1 or SEC1. Defaults to OpenSSH's own. */
  format?: 'PEM' | 'PKCS8'
}

export interface SshServer {
  /** `ssh://<user>@127.0.0.1:<port>`. A repository `<root>/app.git` is at `<url>/app.git`. */
  url: string
  user: string
  port: number
  /** The folder whose repositories are served. */
  root: string
  /** A line of known_hosts: the server's address and its key, of this type. */
  knownHosts(type?: HostKeyType): string
  /** Replaces whose keys are accepted. */
  authorize(...keys: SshKey[]): Promise<void>
  /** Connections since the start. */
  connections(): number
  log(): string
  /** Makes a bare repository `<root>/<name>`. */
  repository(name: string): Promise<Repository>
  stop(): Promise<void>
}

type HostKeyType = 'ed25519' | 'ecdsa' | 'rsa'

export interface SshServerOptions {
  /** Defaults to `ed25519`. */
  hostKeys?: HostKeyType[]
  /** False: the client's wish for protocol version 2 is not heard. */
  protocolV2?: boolean
  /** Signs the host keys: the server shows certificates. */
  authority?: SshKey
  /** Lines of sshd_config(5) that win over those that are set here. */
  config?: string[]
}

/** Serves Git repositories with a real sshd on loopback, read-only: nothing but `git-upload-pack` runs. */
export async function startSshServer(options: SshServerOptions = {}): Promise<SshServer> {
  const { hostKeys = ['ed25519'], protocolV2 = true, authority, config = [] } = options
  const folder = await mkdtemp(join(tmpdir(), 'ssh-server-'))
  await chmod(folder, 0o755)
  const sshd = await prepareSshd(folder)
  const port = await freePort()
  const file = (name: string) => join(folder, name)
  const keys = await Promise.all(hostKeys.map((type) => makeSshKey({ type })))
  for (const [at, { identity, publicKey }] of keys.entries()) {
    await writeFile(file(`host-${at}`), identity, { mode: 0o600 })
    if (authority) await writeFile(file(`host-${at}-cert.pub`), await hostCertificate(authority, publicKey))
    if (sshd.uid !== undefined) await chown(file(`host-${at}`), sshd.uid, sshd.uid)
  }
  await writeFile(file('authorized_keys'), '')
  await writeFile(file('command'), forcedCommand(folder), { mode: 0o755 })
  const lines = [
    ...config,
    `ListenAddress 127.0.0.1:${port}`,
    ...keys.map((_, at) => `HostKey ${file(`host-${at}`)}`),
    ...(authority ? keys.map((_, at) => `HostCertificate ${file(`host-${at}-cert.pub`)}`) : []),
    `AuthorizedKeysFile ${file('authorized_keys')}`,
    `ForceCommand ${file('command')}`,
    'PidFile none',
    'UsePAM no',
    'StrictModes no',
    'LogLevel VERBOSE',
    'MaxStartups 100',
    // The usual one takes ten times as much of the processor, and there is nothing to keep secret here.
    'KexAlgorithms curve25519-sha256',
    ...(protocolV2 ? ['AcceptEnv GIT_PROTOCOL'] : []),
    ...sshd.config,
  ]
  await writeFile(file('sshd_config'), `${lines.join('\n')}\n`)
  const [command, ...args] = [...sshd.command, '-D', '-e', '-f', file('sshd_config')]
  let connections = 0
  const server = await startProcess({
    name: 'sshd',
    command,
    args,
    env: { PATH: process.env['PATH'], ...sshd.env },
    onLine: (line) => void (line.startsWith('Connection from ') && connections++),
  })
  await server.waitForLine(/^Server listening on/)
  return {
    url: `ssh://${sshd.user}@127.0.0.1:${port}`,
    user: sshd.user,
    port,
    root: folder,
    connections: () => connections,
    log: () => server.logs(),
    knownHosts: (type = hostKeys[0]!) => `[127.0.0.1]:${port} ${keys[hostKeys.indexOf(type)]!.publicKey}`,
    authorize: (...allowed) => writeFile(file('authorized_keys'), allowed.map((key) => key.publicKey).join('')),
    repository: (name) => makeRepository(file(name)),
    stop: async () => {
      await server.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Lets in nothing but a read of a repository below `root`. */
function forcedCommand(root: string): string {
  return `#!/bin/sh
name=\${SSH_ORIGINAL_COMMAND#"git-upload-pack '/"}
name=\${name%"'"}
if [ "$SSH_ORIGINAL_COMMAND" != "git-upload-pack '/$name'" ]; then echo 'not allowed' >&2; exit 1; fi
case $name in *..* | *"'"*) echo 'not allowed' >&2; exit 1 ;; esac
export PATH='${process.env['PATH']}' GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
# The repositories may be another user's.
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
export GIT_CONFIG_KEY_1=uploadpack.allowFilter GIT_CONFIG_VALUE_1=true
exec git-upload-pack --strict '${root}'"/$name"
`
}

/** Makes a pair of keys with ssh-keygen. */
export function makeSshKey({ type = 'ed25519', passphrase = '', format }: SshKeyOptions = {}): Promise<SshKey> {
  return inFolder(async (folder) => {
    const path = join(folder, 'key')
    const size = type === 'rsa' ? ['-b', '2048'] : []
    const args = ['-q', '-t', type, ...size, '-N', passphrase, '-C', 'test', '-f', path]
    await promisify(execFile)('ssh-keygen', format ? [...args, '-m', format] : args)
    const [identity, publicKey] = await Promise.all([readFile(path, 'utf8'), readFile(`${path}.pub`, 'utf8')])
    return { identity, publicKey }
  })
}

function hostCertificate(authority: SshKey, publicKey: string): Promise<string> {
  return inFolder(async (folder) => {
    await writeFile(join(folder, 'authority'), authority.identity, { mode: 0o600 })
    await writeFile(join(folder, 'host.pub'), publicKey)
    const args = [
      '-q',
      '-s',
      join(folder, 'authority'),
      '-I',
      'host',
      '-h',
      '-n',
      '127.0.0.1',
      join(folder, 'host.pub'),
    ]
    await promisify(execFile)('ssh-keygen', args)
    return await readFile(join(folder, 'host-cert.pub'), 'utf8')
  })
}

async function inFolder<R>(work: (folder: string) => Promise<R>): Promise<R> {
  const folder = await mkdtemp(join(tmpdir(), 'ssh-keys-'))
  try {
    return await work(folder)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
