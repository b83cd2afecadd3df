import { execFile } from 'node:child_process'
import { copyFile, mkdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const project = join(import.meta.dirname, '../../..')
const run = promisify(execFile)

/** The command that runs the git controller as the package has it: JavaScript, without types to strip. Builds it into `folder`. */
export async function buildOurs(folder: string): Promise<string> {
  await mkdir(folder, { recursive: true })
  // Types are another check's business: the benchmark is of what runs.
  const args = ['--noEmit', 'false', '--noCheck', '--outDir', join(folder, 'dist')]
  await run(process.execPath, [join(project, 'node_modules/typescript/bin/tsc'), ...args], { cwd: project })
  await copyFile(join(project, 'package.json'), join(folder, 'package.json'))
  await symlink(join(project, 'node_modules'), join(folder, 'node_modules'))
  const main = join(folder, 'dist/controllers/git/main.js')
  return (
    `${process.execPath} ${main} --kubeconfig={kubeconfig} --storage-path={storage} --storage-addr={addr} ` +
    '--storage-adv-addr={addr} --health-addr={health} --metrics-addr={metrics}'
  )
}
