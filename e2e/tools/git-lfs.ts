import { access, constants } from 'node:fs/promises'
import { join } from 'node:path'
import { cached, cacheFolder } from './cache.ts'
import { goBuild, goModuleHash, moduleFolderOf, requiredVersion } from './go.ts'

/** Full paths of Git LFS and of the server that its own tests use, which keeps objects in memory. */
export interface GitLfs {
  client: string
  server: string
}

const buildFolder = join(import.meta.dirname, 'git-lfs-build')
const project = 'github.com/git-lfs/git-lfs/v3'

/**
 * Finds the programs: in the folder that OPENFLUX_GIT_LFS names, else in the user's cache folder, which is filled first if it must be, by a Go build of
 * about a minute.
 */
export async function findGitLfs({ OPENFLUX_GIT_LFS: given } = process.env): Promise<GitLfs> {
  const folder = given || (await cachedPrograms())
  const found = { client: join(folder, 'git-lfs'), server: join(folder, 'lfstest-gitserver') }
  for (const program of Object.values(found)) await access(program, constants.X_OK)
  return found
}

async function cachedPrograms(): Promise<string> {
  const [version, hash] = await Promise.all([requiredVersion(buildFolder, project), goModuleHash(buildFolder)])
  const name = `${version}-${hash}-${process.platform}-${process.arch}`
  return cached(cacheFolder('git-lfs', name), async (folder) => {
    const build = (output: string, packagePath: string) =>
      goBuild(`${output} ${version}`, {
        module: buildFolder,
        output: join(folder, output),
        package: packagePath,
        tags: ['testtools'],
      })
    await build('git-lfs', project)
    await build('lfstest-gitserver', join(await moduleFolderOf(buildFolder, project), 't/cmd/lfstest-gitserver.go'))
  })
}
