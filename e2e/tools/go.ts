import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { access, constants, readFile, readdir } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { progress } from './cache.ts'
import { startProcess } from './process.ts'

/** What to build: a package of the Go module in `module`, pinned by its go.mod and go.sum, written to the file `output`. */
export interface GoBuild {
  module: string
  output: string
  package?: string | undefined
  /** `-X` values: the full name of a string variable to its value. */
  variables?: Record<string, string> | undefined
  /** Build constraints that are to hold. */
  tags?: readonly string[] | undefined
}

/** Thrown when there is no Go to build with; the message says what to install. */
export class GoMissingError extends Error {
  override name = 'GoMissingError'
}

/**
 * Builds a static, stripped program, with progress on standard error. The user's GOPROXY, GOFLAGS and build cache apply.
 * Throws GoMissingError, or an Error with the compiler's last lines.
 */
export async function goBuild(what: string, build: GoBuild): Promise<void> {
  const command = await findOnPath('go')
  if (!command) {
    const version = await requiredVersion(build.module, 'go')
    throw new GoMissingError(
      `building ${what} needs Go on the PATH: install Go ${version} or newer (https://go.dev/dl/)`,
    )
  }
  const values = Object.entries(build.variables ?? {}).map(([name, value]) => `-X ${name}=${value}`)
  const ldflags = ['-s', '-w', ...values].join(' ')
  const flags = ['-mod=readonly', '-trimpath', `-tags=${(build.tags ?? []).join(',')}`, `-ldflags=${ldflags}`]
  await progress(`building ${what} with Go, once (some minutes)`, async () => {
    const go = await startProcess({
      name: 'go build',
      command,
      args: ['build', ...flags, '-o', build.output, build.package ?? '.'],
      cwd: build.module,
      // GOWORK: a go.work file in a parent folder would change the pinned versions.
      env: { ...process.env, CGO_ENABLED: '0', GOWORK: 'off', GOOS: process.platform, GOARCH: goArchitecture() },
    })
    const { code, signal } = await go.exited
    if (code !== 0) throw new Error(`go build of ${what} ended with ${signal ?? `code ${code}`}:\n${go.logs(20)}`)
  })
}

/** This machine's architecture as Go and the release pages call it, e.g. `amd64`. */
export function goArchitecture(): string {
  return process.arch === 'x64' ? 'amd64' : process.arch
}

/** Twelve hex digits over the names and contents of the files in a module's folder: equal digits, equal program. */
export async function goModuleHash(module: string): Promise<string> {
  const hash = createHash('sha256')
  for (const name of (await readdir(module)).toSorted()) {
    const content = await readFile(join(module, name))
    hash.update(`${name} ${content.length}\n`).update(content)
  }
  return hash.digest('hex').slice(0, 12)
}

/** Where the source of a module is that has been downloaded for the build of `module`. */
export async function moduleFolderOf(module: string, dependency: string): Promise<string> {
  const args = ['list', '-mod=readonly', '-m', '-f', '{{.Dir}}', dependency]
  const { stdout } = await promisify(execFile)('go', args, { cwd: module, env: { ...process.env, GOWORK: 'off' } })
  return stdout.trim()
}

/** The version that a module's go.mod requires of another (`v1.36.3`), or of `go` (`1.26.0`). Throws when it does not. */
export async function requiredVersion(module: string, dependency: string): Promise<string> {
  const lines = (await readFile(join(module, 'go.mod'), 'utf8')).split('\n')
  const words = lines.map((line) =>
    line
      .trim()
      .replace(/^require /, '')
      .split(' '),
  )
  const version = words.find(([name]) => name === dependency)?.[1]
  if (!version) throw new Error(`${join(module, 'go.mod')} does not require ${dependency}`)
  return version
}

/** The full path of an executable on the PATH. */
export async function findOnPath(program: string): Promise<string | undefined> {
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    const file = join(folder || '.', program)
    const executable = await access(file, constants.X_OK).then(
      () => true,
      () => false, // not in this folder
    )
    if (executable) return file
  }
  return undefined
}
