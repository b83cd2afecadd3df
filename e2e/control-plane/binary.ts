import { access, constants, rename, rm, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { cached, cacheFolder, note } from '../tools/cache.ts'
import { goBuild, goModuleHash, GoMissingError, requiredVersion } from '../tools/go.ts'
import { downloadRelease } from './release.ts'

/** Full paths of the programs that make a control plane, and kubectl. */
export interface Binaries {
  etcd: string
  apiServer: string
  controllerManager: string
  kubectl: string
}

const programs = ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kubectl'] as const
type Program = (typeof programs)[number]

const moduleFolder = join(import.meta.dirname, 'build')

/**
 * Finds the programs: in the folder that KUBEBUILDER_ASSETS names, else in the user's cache folder, which is filled first if
 * it must be, by the official release or by a Go build of some minutes. kube-controller-manager and kubectl may be missing
 * from KUBEBUILDER_ASSETS, as they are where `setup-envtest` filled it; they are then looked for in the cache.
 */
export async function findBinaries({ KUBEBUILDER_ASSETS: assets } = process.env): Promise<Binaries> {
  const given = assets ? await programsIn(assets) : new Set<Program>()
  if (assets && !(given.has('etcd') && given.has('kube-apiserver'))) {
    throw new Error(`KUBEBUILDER_ASSETS names ${assets}, which has no executable etcd and kube-apiserver`)
  }
  const cache = given.size < programs.length ? await cachedBinaries() : ''
  const path = (program: Program) => join(assets && given.has(program) ? assets : cache, program)
  return {
    etcd: path('etcd'),
    apiServer: path('kube-apiserver'),
    controllerManager: path('kube-controller-manager'),
    kubectl: path('kubectl'),
  }
}

async function programsIn(folder: string): Promise<Set<Program>> {
  const found = await Promise.all(
    programs.map((program) =>
      access(join(folder, program), constants.X_OK).then(
        () => program,
        () => undefined, // missing, or not a program: the caller knows whether it must be there
      ),
    ),
  )
  return new Set(found.filter((program) => program !== undefined))
}

/** The folder with all four programs below the cache folder; one per version, source of the build, and platform. */
async function cachedBinaries(): Promise<string> {
  const [version, hash] = await Promise.all([
    requiredVersion(moduleFolder, 'k8s.io/kubernetes'),
    goModuleHash(moduleFolder),
  ])
  const platform = `${process.platform}-${process.arch}`
  return cached(cacheFolder('control-plane', `${version}-${hash}-${platform}`), async (folder) => {
    const etcdVersion = await requiredVersion(moduleFolder, 'go.etcd.io/etcd/server/v3')
    try {
      if (process.platform !== 'linux') throw new Error(`there is none for ${process.platform}`)
      await downloadRelease(folder, { kubernetes: version, etcd: etcdVersion })
    } catch (err) {
      note(
        `official release of the control plane: ${err instanceof Error ? err.message : String(err)}; building it instead`,
      )
      await Promise.all(programs.map((program) => rm(join(folder, program), { force: true })))
      await build(folder, version)
    }
  })
}

async function build(folder: string, version: string): Promise<void> {
  const output = join(folder, 'control-plane')
  try {
    await goBuild(`the control plane (Kubernetes ${version})`, {
      module: moduleFolder,
      output: `${output}.part`,
      variables: versionVariables(version),
    })
  } catch (err) {
    if (!(err instanceof GoMissingError)) throw err
    throw new GoMissingError(
      `${err.message}, or set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-controller-manager and kubectl`,
    )
  }
  await rename(`${output}.part`, output)
  await Promise.all(programs.map((program) => symlink('control-plane', join(folder, program))))
}

/** What a release has in place of `v0.0.0-master+$Format:%H$`; clients and server both tell it. */
function versionVariables(version: string): Record<string, string> {
  const [major = '', minor = ''] = version.replace(/^v/, '').split('.')
  const values = { gitVersion: version, gitMajor: major, gitMinor: minor, gitCommit: '', gitTreeState: 'clean' }
  const packages = ['k8s.io/component-base/version', 'k8s.io/client-go/pkg/version']
  return Object.fromEntries(
    packages.flatMap((name) => Object.entries(values).map(([key, value]) => [`${name}.${key}`, value])),
  )
}
