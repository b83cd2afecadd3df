import { access, constants, copyFile, mkdir, readdir, writeFile } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { basename, join } from 'node:path'
import { debianPackages } from './debian.ts'
import { codeOf } from './errors.ts'
import { findOnPath } from './go.ts'

/** How sshd is run here. */
export interface Sshd {
  /** The whole command line before sshd's own arguments; changes to another user where root is not to be it. */
  command: [string, ...string[]]
  env: Record<string, string>
  /** Lines for sshd_config(5). */
  config: string[]
  /** Whom sshd lets in: it runs as nobody else. */
  user: string
  /** Who must be able to read its files, where that is not the user of this process. */
  uid?: number
}

const wrapper = 'libnss-wrapper'
const nobody = 65_534

/**
 * Makes sshd ready to run: from the folder that OPENFLUX_SSHD names, else the system's own, else Debian's package, which is unpacked into the user's cache
 * folder. As root, or without a name in /etc/passwd, it runs as a user `git` that it alone knows (nss_wrapper): then it needs neither an account nor
 * /run/sshd. `folder` is for files of its own; whoever runs it must be able to read it.
 */
export async function prepareSshd(folder: string): Promise<Sshd> {
  const { program, files } = await findSshd()
  const own = ownName()
  if (own !== undefined && files.length === 0) return { command: [program], env: {}, config: [], user: own }
  const wrapperFiles = own === undefined ? await filesOf([wrapper]) : []
  const bin = join(folder, 'bin')
  await mkdir(bin)
  // Copies, because another user cannot read this user's cache.
  for (const file of [program, ...files, ...wrapperFiles]) await copyFile(file, join(bin, basename(file)))
  const sshd = { env: { LD_LIBRARY_PATH: bin }, config: await helpersIn(bin) }
  const command = join(bin, basename(program))
  if (own !== undefined) return { ...sshd, command: [command], user: own }
  return { ...sshd, ...(await asGit(command, folder, sshd.env)) }
}

async function asGit(command: string, folder: string, env: Record<string, string>): Promise<Omit<Sshd, 'config'>> {
  const uid = process.getuid!() === 0 ? nobody : process.getuid!()
  const change = ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--'] as const
  const variables = {
    ...env,
    LD_PRELOAD: join(folder, 'bin', 'libnss_wrapper.so'),
    NSS_WRAPPER_PASSWD: join(folder, 'passwd'),
    NSS_WRAPPER_GROUP: join(folder, 'group'),
  }
  await writeFile(variables.NSS_WRAPPER_PASSWD, `git:x:${uid}:${uid}::/:/bin/sh\n`)
  await writeFile(variables.NSS_WRAPPER_GROUP, `git:x:${uid}:\n`)
  return {
    command: uid === nobody ? [...change, command] : [command],
    env: variables,
    user: 'git',
    ...(uid === nobody && { uid }),
  }
}

/** `files` are those it cannot run without. */
async function findSshd({ OPENFLUX_SSHD: given } = process.env): Promise<{ program: string; files: string[] }> {
  if (given) {
    if (await isProgram(join(given, 'sshd'))) return { program: join(given, 'sshd'), files: [] }
    throw new Error(`OPENFLUX_SSHD names ${given}, which has no executable sshd`)
  }
  const installed = (await findOnPath('sshd')) ?? ((await isProgram('/usr/sbin/sshd')) ? '/usr/sbin/sshd' : undefined)
  if (installed) return { program: installed, files: [] }
  const [program, ...files] = await filesOf(['openssh-server', 'libwrap0'])
  return { program: program!, files }
}

/** The programs and libraries in Debian packages, sshd first. */
async function filesOf(packages: string[]): Promise<string[]> {
  const root = await debianPackages(packages)
  const names = await readdir(root, { recursive: true })
  const wanted = names.filter((name) => /^(?:usr\/)?(?:sbin\/sshd|lib\/.*\/(?:lib\w+\.so[.\d]*|sshd-\w+))$/.test(name))
  return wanted.toSorted((a) => (a.endsWith('/sshd') ? -1 : 1)).map((name) => join(root, name))
}

/** From OpenSSH 9.8 on sshd is several programs. */
async function helpersIn(bin: string): Promise<string[]> {
  const names = await readdir(bin)
  return [
    ['sshd-session', 'SshdSessionPath'],
    ['sshd-auth', 'SshdAuthPath'],
  ].flatMap(([name, option]) => (names.includes(name!) ? [`${option} ${join(bin, name!)}`] : []))
}

async function isProgram(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false, // missing, or not for us
  )
}

/** Undefined for root, whom sshd treats in a way of its own, and for who has no name. */
function ownName(): string | undefined {
  if (process.getuid!() === 0) return undefined
  try {
    return userInfo().username
  } catch (err) {
    if (codeOf(err) === 'ERR_SYSTEM_ERROR') return undefined
    throw err
  }
}
