import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { request } from 'undici'
import { freePort } from '../../tools/port.ts'
import { startProcess, type SupervisedProcess } from '../../tools/process.ts'

/** A controller that is measured, by its command line. */
export interface ArmCommand {
  name: 'ours' | 'peer'
  /** For the shell, one simple command; {storage}, {addr}, {health}, {metrics} and {kubeconfig} are replaced. */
  command: string
}

/** A controller that runs, and what it runs on. */
export interface Arm extends AsyncDisposable {
  readonly name: string
  readonly process: SupervisedProcess
  /** Its storage, empty at first. */
  readonly storage: string
}

export interface ArmOptions {
  kubeconfig: string
  /** Made here, with the storage and a folder for temporary files in it. */
  folder: string
  /** Processors it may use, as taskset(1) takes them; all of them without it. */
  cpus?: string | undefined
  env?: NodeJS.ProcessEnv
  onLine?: (line: string) => void
}

/** Starts a controller and resolves when it says that it is ready. Throws with its log when it does not come up. */
export async function startArm({ name, command }: ArmCommand, options: ArmOptions): Promise<Arm> {
  const { kubeconfig, folder, cpus, env, onLine } = options
  const storage = join(folder, 'storage')
  const temporary = join(folder, 'tmp')
  await Promise.all([storage, temporary].map((path) => mkdir(path, { recursive: true })))
  const [addr, health, metrics] = await Promise.all([address(), address(), address()])
  const values: Record<string, string> = { storage, addr, health, metrics, kubeconfig }
  const line = command.replaceAll(/\{(\w+)\}/g, (text, key: string) => values[key] ?? text)
  const child = await startProcess({
    name,
    command: '/bin/sh',
    args: ['-c', `exec ${cpus ? `taskset -c ${cpus} ` : ''}${line}`],
    env: { ...process.env, KUBECONFIG: kubeconfig, TMPDIR: temporary, ...env },
    onLine,
  })
  try {
    await child.waitUntil(() => isReady(health), 120_000)
  } catch (err) {
    await child.stop()
    throw err
  }
  return { name, process: child, storage, [Symbol.asyncDispose]: async () => void (await child.stop(20_000)) }
}

async function address(): Promise<string> {
  return `127.0.0.1:${await freePort()}`
}

async function isReady(health: string): Promise<boolean> {
  try {
    const { statusCode, body } = await request(`http://${health}/readyz`)
    await body.dump()
    return statusCode === 200
  } catch {
    return false // not listening yet
  }
}
