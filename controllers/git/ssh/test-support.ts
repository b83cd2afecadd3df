import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  makeSshKey,
  startSshServer,
  type SshKey,
  type SshServer,
  type SshServerOptions,
} from '../../../e2e/ssh-server.ts'
import type { Access } from '../access/access.ts'
import type { GitHome } from '../environment.ts'
import { runGit } from '../git.ts'
import { sshAccess } from './identity.ts'
import { SshRemote, type SshRemoteOptions } from './remote.ts'

/** A real sshd with the repository `app.git` and a key that it accepts. For tests. */
export interface SshStage {
  server: SshServer
  key: SshKey
  home: GitHome
  /** Of the stage's repository, with its key and known_hosts unless others are given. */
  remote(data?: Record<string, string>, more?: Partial<SshRemoteOptions> & { url?: string; over?: Access }): SshRemote
  /** What is left of the files with keys. */
  files(): Promise<string[]>
  close(): Promise<void>
}

/** Starts a server of its own. */
export async function openSshStage(options: SshServerOptions = {}): Promise<SshStage> {
  const folder = await mkdtemp(join(tmpdir(), 'openflux-ssh-'))
  const home = { home: join(folder, 'home'), run: join(folder, 'run'), path: process.env['PATH']! }
  await mkdir(home.home)
  const [server, key] = await Promise.all([startSshServer(options), makeSshKey()])
  await server.authorize(key)
  return {
    server,
    key,
    home,
    remote: (data = {}, { url = `${server.url}/app.git`, over, ...more } = {}) => {
      const texts = { identity: key.identity, known_hosts: server.knownHosts(), ...data }
      const secret = Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, Buffer.from(text)]))
      const access = sshAccess(secret, 'ns/keys')
      return new SshRemote(
        url,
        { ...over, ...access, secrets: [...access.secrets, ...(over?.secrets ?? [])] },
        { home, ...more },
      )
    },
    files: () => readdir(home.run).catch(() => []),
    close: async () => {
      await server.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** What native git says of `refs/heads/main` over a remote's connection. */
export async function lsRemote(remote: SshRemote, home: GitHome): Promise<string> {
  const { url, env, release } = await remote.connect(home)
  try {
    const signal = AbortSignal.timeout(60_000)
    return (await runGit(['ls-remote', url, 'refs/heads/main'], { env, signal })).toString()
  } finally {
    await release()
  }
}

/** The command lines of the processes of this machine that have `text` in theirs, by process id. */
export async function commandsWith(text: string): Promise<Map<string, string>> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name) && name !== String(process.pid))
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')))
  return new Map(pids.map((pid, at) => [pid, lines[at]!] as const).filter(([, line]) => line.includes(text)))
}
