import { fileURLToPath } from 'node:url'
import { extname } from 'node:path'
import type { Proxy, SshIdentity } from '../access/access.ts'
import { writeCredentialFiles } from '../credential-files.ts'
import type { SshAddress } from './address.ts'

/** How ssh is called for one connection. */
export interface SshCall {
  /** Options for ssh's command line; no secret is in them. */
  options: string[]
  /** Variables for its environment: the passphrase and the proxy's credentials are here alone. */
  variables: Record<string, string>
  /** The path of the file with the private key. */
  identityFile: string
  /** Removes the files with the keys. To be called when ssh has ended. */
  release: () => Promise<void>
}

export interface SshCallOptions {
  address: SshAddress
  identity: SshIdentity
  proxy?: Proxy | undefined
  hostKeyAlgorithms: readonly string[]
  /** ssh's own choice where there are none. */
  kexAlgorithms?: readonly string[] | undefined
  /** Where the files with the keys are while ssh runs. */
  folder: string
}

/** ssh_config(5). No file of the user or the machine is read, nothing is asked, nothing is forwarded, nobody is trusted who is not known. */
const always = [
  'IdentitiesOnly=yes',
  'IdentityAgent=none',
  'PreferredAuthentications=publickey',
  'PasswordAuthentication=no',
  'KbdInteractiveAuthentication=no',
  'NumberOfPasswordPrompts=1',
  'StrictHostKeyChecking=yes',
  'GlobalKnownHostsFile=/dev/null',
  'UpdateHostKeys=no',
  'CheckHostIP=no',
  'VerifyHostKeyDNS=no',
  'ClearAllForwardings=yes',
  'ForwardAgent=no',
  'PermitLocalCommand=no',
  'ControlMaster=no',
  'ControlPath=none',
  'RequestTTY=no',
  'ConnectTimeout=30',
  'ServerAliveInterval=15',
  'ServerAliveCountMax=3',
  'SendEnv=GIT_PROTOCOL',
  // With less it does not say why it could not come to terms with the server.
  'LogLevel=INFO',
  'IgnoreUnknown=WarnWeakCrypto',
  'WarnWeakCrypto=no',
]

const askpass = `#!/bin/sh\nprintf '%s\\n' "$OPENFLUX_SSH_PASSPHRASE"\n`

/** Writes the files that ssh needs, and tells how to call it. */
export async function prepareSsh(call: SshCallOptions): Promise<SshCall> {
  const { address, identity, proxy, hostKeyAlgorithms, kexAlgorithms, folder } = call
  const contents = { identity: identity.identity, known_hosts: identity.knownHosts, askpass }
  const { paths, release } = await writeCredentialFiles<keyof typeof contents>(folder, contents, ['askpass'])
  const settings = [
    ...always,
    `User=${address.user}`,
    `Port=${address.port}`,
    `IdentityFile=${file(paths.identity)}`,
    `UserKnownHostsFile=${file(paths.known_hosts)}`,
    `HostKeyAlgorithms=${hostKeyAlgorithms.join(',')}`,
    ...(kexAlgorithms?.length ? [`KexAlgorithms=${kexAlgorithms.join(',')}`] : []),
    // With it ssh does not even ask for a passphrase, which is how it gets one.
    `BatchMode=${identity.passphrase === undefined ? 'yes' : 'no'}`,
    `ProxyCommand=${proxy ? proxyCommand() : 'none'}`,
  ]
  return {
    options: ['-F', '/dev/null', ...settings.flatMap((setting) => ['-o', setting])],
    variables: { SHELL: '/bin/sh', ...askpassVariables(identity, paths.askpass), ...proxyVariables(proxy) },
    identityFile: paths.identity,
    release,
  }
}

/** One word of a POSIX shell's command line; `!` too, for shells on servers that are none. The same as git's own quoting. */
export function shellWord(text: string): string {
  return `'${text.replace(/['!]/g, (c) => `'\\${c}'`)}'`
}

/** In ssh's configuration `%` begins a token, and quotes are what they are in C. */
function file(path: string): string {
  return `"${path.replaceAll('%', '%%').replace(/["\\]/g, '\\$&')}"`
}

function proxyCommand(): string {
  const script = new URL(`proxy-command${extname(import.meta.url)}`, import.meta.url)
  const words = [process.execPath, fileURLToPath(script)].map((word) => shellWord(word).replaceAll('%', '%%'))
  return `${words.join(' ')} %h %p`
}

function askpassVariables({ passphrase }: SshIdentity, program: string): Record<string, string> {
  if (passphrase === undefined) return { SSH_ASKPASS_REQUIRE: 'never' }
  return { SSH_ASKPASS: program, SSH_ASKPASS_REQUIRE: 'force', OPENFLUX_SSH_PASSPHRASE: passphrase }
}

function proxyVariables(proxy: Proxy | undefined): Record<string, string> {
  if (!proxy) return {}
  const { url, username = '', password = '' } = proxy
  return { OPENFLUX_PROXY_URL: url, OPENFLUX_PROXY_USERNAME: username, OPENFLUX_PROXY_PASSWORD: password }
}
