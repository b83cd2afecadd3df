import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { eventually } from '../controllers/runtime/eventually.ts'
import { sharedControlPlane } from './shared-control-plane.ts'
import { type SupervisedProcess, startProcess } from './tools/process.ts'

const project = join(import.meta.dirname, '..')

/** Runs what `npm start` runs; PATH is npm's already. */
function start(...args: string[]) {
  const dev = join(project, 'controllers/dev.ts')
  return startProcess({
    name: 'npm start',
    command: process.execPath,
    args: [dev, ...args],
    env: { ...process.env, KUBECONFIG: '' },
  })
}

/** The processes of a control plane, by the folder of its data, which is on the command line of each. */
async function processesOf(folder: string): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  // One that is gone meanwhile has no command line.
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')))
  return lines.filter((line) => line.includes(folder))
}

/** The folder of the control plane's data, from what `npm start` says of it. */
async function dataFolder(child: SupervisedProcess): Promise<string> {
  const [, folder] = await child.waitForLine(/--kubeconfig (\S+)\/credentials\//, 120_000)
  return folder!
}

describe('npm start', () => {
  it('shows a real repository from source to consumer, ends with --once, and leaves nothing running', async () => {
    const child = await start('--once')
    const folder = await dataFolder(child)
    assert.ok((await processesOf(folder)).length >= 3)
    const { code } = await child.exited
    assert.equal(code, 0, child.logs(40))
    for (const line of [
      /cluster +ready/,
      /artifact +gitrepository-/,
      /source +.*Ready True, stored artifact for revision '/,
      /done +\d+ files of .*digest verified/,
    ])
      assert.match(child.logs(40), line)
    await eventually(async () => (await processesOf(folder)).length === 0)
  })

  it('goes on until Ctrl-C, then ends cleanly', async () => {
    const child = await start()
    const folder = await dataFolder(child)
    await child.waitForLine(/done +\d+ files/, 120_000)
    child.kill('SIGINT')
    const { code } = await child.exited
    assert.equal(code, 0, child.logs(40))
    await eventually(async () => (await processesOf(folder)).length === 0)
  })

  it('says why and exits with 1 when the repository is not to be had', async () => {
    const { kubeconfig } = await sharedControlPlane()
    const child = await start(
      `--kubeconfig=${kubeconfig}`,
      '--namespace=refused',
      '--git=http://127.0.0.1:9/nothing.git',
      '--branch=main',
      '--once',
      '--once-timeout=6s',
    )
    const { code } = await child.exited
    assert.equal(code, 1, child.logs(40))
    assert.match(child.logs(40), /failed .*/)
    assert.match(child.logs(40), /127\.0\.0\.1:9\/nothing\.git/)
  })
})
