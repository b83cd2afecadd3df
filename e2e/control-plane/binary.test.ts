import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { access, constants, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { create } from 'tar'
import { goArchitecture, goBuild, GoMissingError } from '../tools/go.ts'
import { listen } from '../tools/port.ts'
import { findBinaries } from './binary.ts'
import { downloadRelease } from './release.ts'

const programs = ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kubectl']

describe('the programs of the control plane', function () {
  this.timeout(30_000)
  let folder: string

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'binaries-test-'))
  })
  afterEach(() => rm(folder, { recursive: true }))

  it('are those of KUBEBUILDER_ASSETS when it has all of them', async () => {
    for (const program of programs) await writeFile(join(folder, program), '', { mode: 0o755 })
    assert.deepEqual(await findBinaries({ KUBEBUILDER_ASSETS: folder }), {
      etcd: join(folder, 'etcd'),
      apiServer: join(folder, 'kube-apiserver'),
      controllerManager: join(folder, 'kube-controller-manager'),
      kubectl: join(folder, 'kubectl'),
    })
  })

  it('are not taken from a KUBEBUILDER_ASSETS without an executable etcd', async () => {
    await writeFile(join(folder, 'etcd'), '', { mode: 0o644 })
    await writeFile(join(folder, 'kube-apiserver'), '', { mode: 0o755 })
    const found = findBinaries({ KUBEBUILDER_ASSETS: folder })
    await assert.rejects(found, new RegExp(`KUBEBUILDER_ASSETS names ${folder}, which has no executable etcd`))
  })

  it('cannot be built without Go, and the error says what to install', async () => {
    const path = process.env.PATH
    process.env.PATH = folder
    try {
      const build = goBuild('it', { module: join(import.meta.dirname, 'build'), output: join(folder, 'it') })
      await assert.rejects(build, (err) => err instanceof GoMissingError && /install Go 1\.\d+/.test(err.message))
    } finally {
      process.env.PATH = path
    }
  })
})

describe('the official release', function () {
  this.timeout(30_000)
  const versions = { kubernetes: 'v1.2.3', etcd: 'v4.5.6' }
  const files = new Map<string, Buffer>()
  let server: Server
  let root: string
  let folder: string
  let sites: { kubernetes: string; etcd: string }

  before(async () => {
    server = createServer((request, response) => {
      const content = files.get(request.url ?? '')
      response.writeHead(content ? 200 : 404).end(content)
    })
    const site = `http://127.0.0.1:${await listen(server)}`
    sites = { kubernetes: `${site}/k8s`, etcd: `${site}/etcd` }
  })
  after(() => {
    server.close()
  })
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'release-test-'))
    folder = await mkdtemp(join(root, 'programs-'))
    await publish()
  })
  afterEach(() => rm(root, { recursive: true }))

  /** Lays out files as the two release sites do. */
  async function publish(): Promise<void> {
    for (const program of programs.slice(1)) {
      const path = `/k8s/v1.2.3/bin/linux/${goArchitecture()}/${program}`
      files.set(path, Buffer.from(`this is ${program}`))
      files.set(`${path}.sha256`, Buffer.from(sha256(files.get(path)!)))
    }
    const name = `etcd-v4.5.6-linux-${goArchitecture()}`
    await writeFile(join(root, 'etcd'), 'this is etcd', { mode: 0o755 })
    await writeFile(join(root, 'README'), 'not wanted')
    await create({ file: join(root, 'archive'), cwd: root, gzip: true, prefix: name }, ['README', 'etcd'])
    const archive = await readFile(join(root, 'archive'))
    files.set(`/etcd/v4.5.6/${name}.tar.gz`, archive)
    files.set('/etcd/v4.5.6/SHA256SUMS', Buffer.from(`${'0'.repeat(64)}  other\n${sha256(archive)}  ${name}.tar.gz\n`))
  }

  it('fills a folder with the four programs', async () => {
    await downloadRelease(folder, versions, sites)
    assert.deepEqual((await readdir(folder)).toSorted(), programs)
    for (const program of programs) {
      assert.equal(await readFile(join(folder, program), 'utf8'), `this is ${program}`)
      await access(join(folder, program), constants.X_OK)
    }
  })

  it('is refused when a program does not have the published digest', async () => {
    files.set(`/k8s/v1.2.3/bin/linux/${goArchitecture()}/kubectl`, Buffer.from('this is evil'))
    await assert.rejects(downloadRelease(folder, versions, sites), /kubectl has SHA-256/)
  })

  it('is refused when it is not there', async () => {
    files.clear()
    await assert.rejects(downloadRelease(folder, versions, sites), /kube-apiserver.sha256 answered 404/)
  })
})

function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}
