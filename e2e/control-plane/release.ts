import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { extract } from 'tar'
import { progress } from '../tools/cache.ts'
import { checksumOf, downloadFile, downloadText } from '../tools/download.ts'
import { goArchitecture } from '../tools/go.ts'

/** Versions with their leading `v`. */
export interface Versions {
  kubernetes: string
  etcd: string
}

/** Where the releases are published; another place must have the same paths. */
export interface ReleaseSites {
  kubernetes: string
  etcd: string
}

const officialSites: ReleaseSites = {
  kubernetes: 'https://dl.k8s.io/release',
  etcd: 'https://github.com/etcd-io/etcd/releases/download',
}

/**
 * Fills a folder with etcd, kube-apiserver, kube-controller-manager and kubectl of the official releases for Linux, each
 * compared with its published SHA-256. Throws when one cannot be had, after seconds if there is no connection.
 */
export async function downloadRelease(folder: string, versions: Versions, sites = officialSites): Promise<void> {
  const architecture = goArchitecture()
  const binaries = `${sites.kubernetes}/${versions.kubernetes}/bin/linux/${architecture}`
  // Asked for before anything is announced: without a way there, the reason alone is worth a line.
  await downloadText(`${binaries}/kube-apiserver.sha256`)
  await progress(`downloading the control plane (Kubernetes ${versions.kubernetes}), once`, async () => {
    for (const program of ['kube-apiserver', 'kube-controller-manager', 'kubectl']) {
      const sums = await downloadText(`${binaries}/${program}.sha256`)
      await downloadFile(`${binaries}/${program}`, join(folder, program), checksumOf(program, sums))
    }
    await downloadEtcd(folder, `${sites.etcd}/${versions.etcd}`, `etcd-${versions.etcd}-linux-${architecture}`)
  })
}

async function downloadEtcd(folder: string, site: string, name: string): Promise<void> {
  const archive = join(folder, `${name}.tar.gz`)
  const sums = await downloadText(`${site}/SHA256SUMS`)
  await downloadFile(`${site}/${name}.tar.gz`, archive, checksumOf(`${name}.tar.gz`, sums))
  await extract({ file: archive, cwd: folder, strip: 1 }, [`${name}/etcd`])
  await rm(archive)
}
