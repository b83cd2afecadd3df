import { mkdir, readFile, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { cached, cacheFolder, progress } from './cache.ts'
import { findOnPath } from './go.ts'
import { startProcess } from './process.ts'

/**
 * A folder with the files of Debian packages, unpacked but not installed (`usr/sbin/…`), without what they depend on; kept in the user's cache folder for
 * this release of the system. Throws where there is no `apt-get`, or it does not get them.
 */
export async function debianPackages(packages: readonly string[]): Promise<string> {
  const [aptGet, dpkgDeb] = await Promise.all([findOnPath('apt-get'), findOnPath('dpkg-deb')])
  const names = packages.join(', ')
  if (!aptGet || !dpkgDeb) throw new Error(`there is no apt-get to get ${names} with: install what is in them`)
  const target = join(packages.join('+'), `${await systemRelease()}-${process.arch}`)
  return cached(cacheFolder('debian', target), (folder) =>
    progress(`getting ${names} from Debian, once`, async () => {
      const downloads = join(folder, '.downloads')
      await mkdir(downloads)
      await download(aptGet, packages, downloads)
      for (const name of await readdir(downloads)) {
        if (name.endsWith('.deb')) await run(dpkgDeb, ['-x', join(downloads, name), folder], '/')
      }
      await rm(downloads, { recursive: true })
    }),
  )
}

/** With the machine's own lists of packages; where they are missing or old, with new ones that are forgotten afterwards. */
async function download(aptGet: string, packages: readonly string[], folder: string): Promise<void> {
  const options = ['-q', '-o', 'APT::Sandbox::User=root']
  await run(aptGet, [...options, 'download', ...packages], folder).catch(async () => {
    for (const name of ['lists', 'cache']) await mkdir(join(folder, name, 'partial'), { recursive: true })
    const own = ['-o', `Dir::State::lists=${join(folder, 'lists')}`, '-o', `Dir::Cache=${join(folder, 'cache')}`]
    await run(aptGet, [...options, ...own, 'update'], folder)
    await run(aptGet, [...options, ...own, 'download', ...packages], folder)
  })
}

/** E.g. `debian-12`; the programs of one release do not run on another. */
async function systemRelease(): Promise<string> {
  const text = await readFile('/etc/os-release', 'utf8')
  const value = (key: string) => new RegExp(`^${key}="?([a-z0-9._-]+)"?$`, 'm').exec(text)?.[1] ?? 'unknown'
  return `${value('ID')}-${value('VERSION_ID')}`
}

async function run(command: string, args: readonly string[], cwd: string): Promise<void> {
  const child = await startProcess({ name: command, command, args, cwd, env: { ...process.env, LC_ALL: 'C' } })
  const { code, signal } = await child.exited
  if (code !== 0) throw new Error(`${command} ended with ${signal ?? `code ${code}`}:\n${child.logs(20)}`)
}
