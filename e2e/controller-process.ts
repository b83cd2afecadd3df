import { join } from 'node:path'
import { request } from 'undici'
import { type SupervisedProcess, startProcess } from './tools/process.ts'

/** A controller running as a process of its own, as its Deployment runs it. */
export interface ControllerProcess extends AsyncDisposable {
  readonly process: SupervisedProcess
  /** Where this process serves artifacts, without a trailing slash; not the advertised URL. */
  readonly storageUrl: string
  /** The status of `/readyz` and what it says is missing. */
  readiness(): Promise<{ ready: boolean; text: string }>
  /** The text of `/metrics`. */
  metrics(): Promise<string>
  stop(): Promise<void>
}

export interface ControllerProcessOptions {
  kubeconfig: string
  /** The storage folder; it must exist. */
  storage: string
  /** The file below the project, e.g. `controllers/git/main.ts`. */
  main?: string
  /** Further flags; they win over the ones that tests need. */
  flags?: readonly string[]
  /** `127.0.0.1:port` to serve artifacts on, for URLs that survive a restart. Defaults to a free port. */
  storageAddress?: string
  env?: NodeJS.ProcessEnv
}

const project = join(import.meta.dirname, '..')

/** Starts a controller and resolves when it listens. Throws with its log when it does not come up. */
export async function startController(options: ControllerProcessOptions): Promise<ControllerProcess> {
  const { kubeconfig, storage, main = 'controllers/main.ts', flags = [], storageAddress = '127.0.0.1:0' } = options
  const child = await startProcess({
    name: main,
    command: process.execPath,
    args: [
      join(project, main),
      `--kubeconfig=${kubeconfig}`,
      `--storage-path=${storage}`,
      `--storage-addr=${storageAddress}`,
      '--metrics-addr=127.0.0.1:0',
      '--health-addr=127.0.0.1:0',
      '--min-retry-delay=200ms',
      '--max-retry-delay=2s',
      ...flags,
    ],
    env: { ...process.env, ...options.env },
  })
  const serving = await child.waitForLine(/"storagePort":(\d+)/, 30_000)
  const ports = await child.waitForLine(/"healthPort":(\d+),"metricsPort":(\d+)/, 30_000)
  const get = async (port: string | undefined, path: string) => {
    const { statusCode, body } = await request(`http://127.0.0.1:${port}${path}`)
    return { statusCode, text: await body.text() }
  }
  return {
    process: child,
    storageUrl: `http://127.0.0.1:${serving[1]}`,
    async readiness() {
      const { statusCode, text } = await get(ports[1], '/readyz')
      return { ready: statusCode === 200, text }
    },
    metrics: async () => (await get(ports[2], '/metrics')).text,
    stop: async () => void (await child.stop(15_000)),
    [Symbol.asyncDispose]: async () => void (await child.stop(15_000)),
  }
}
