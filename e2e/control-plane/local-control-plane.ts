import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../tools/port.ts'
import type { SupervisedProcess } from '../tools/process.ts'
import { temporaryFolder } from '../tools/temporary.ts'
import type { Binaries } from './binary.ts'
import { etcdSocket, startApiServer, startControllerManager, startEtcd, type Setting } from './components.ts'
import { makeCredentials, writeKubeconfig, type User } from './credentials.ts'
import type { ControlPlane, ControlPlaneOptions } from './index.ts'
import { answers, installCrds, listens, type Access } from './readiness.ts'

const readyTimeoutMs = 60_000
const graceMs = 5000
const portAttempts = 3
const administrators = ['system:masters']

/** The processes of one control plane and what they share. */
export class LocalControlPlane implements ControlPlane {
  readonly #setting: Setting
  readonly #client: Access['client']
  readonly #processes: Partial<Record<'etcd' | 'apiServer' | 'controllerManager', SupervisedProcess>> = {}
  #stopping: Promise<void> | undefined
  kubeconfig = ''

  /** Makes the folder and the credentials; `stop` removes them. */
  static async prepare(binaries: Binaries): Promise<LocalControlPlane> {
    const folder = await temporaryFolder()
    const credentials = await makeCredentials(join(folder, 'credentials'))
    return new LocalControlPlane({ folder, binaries, credentials, port: 0, controllerManagerKubeconfig: '' })
  }

  private constructor(setting: Setting) {
    this.#setting = setting
    this.#client = setting.credentials.authority.issue({ commonName: 'starter', organizations: administrators })
  }

  async start({ crds = [] }: ControlPlaneOptions): Promise<void> {
    const etcd = await startEtcd(this.#setting)
    this.#processes.etcd = etcd
    await etcd.waitUntil(() => listens(etcdSocket(this.#setting)), readyTimeoutMs)
    await this.#startApiServerOnFreePort()
    this.kubeconfig = await this.userKubeconfig('admin', administrators)
    this.#setting.controllerManagerKubeconfig = await this.userKubeconfig('system:kube-controller-manager')
    if (crds.length > 0) await installCrds(this.kubectl, this.kubeconfig, crds)
    await this.#startControllerManager()
  }

  get url(): string {
    return `https://127.0.0.1:${this.#setting.port}`
  }

  get kubectl(): string {
    return this.#setting.binaries.kubectl
  }

  get pids(): number[] {
    const { etcd, apiServer, controllerManager } = this.#processes
    return [etcd, apiServer, controllerManager].flatMap((process) => (process?.running ? [process.pid] : []))
  }

  userKubeconfig(name: string, groups?: User['groups']): Promise<string> {
    return writeKubeconfig(this.#setting.credentials, this.url, { name, groups })
  }

  async restartApiServer(downMs = 0): Promise<void> {
    await this.#processes.apiServer?.stop(graceMs)
    await sleep(downMs)
    await this.startApiServer()
  }

  async killApiServer(): Promise<void> {
    this.#processes.apiServer?.kill('SIGKILL')
    await this.#processes.apiServer?.exited
  }

  async startApiServer(): Promise<void> {
    if (this.#processes.apiServer?.running) throw new Error('kube-apiserver is running already')
    if (this.#stopping) throw new Error('the control plane is stopped')
    const apiServer = await startApiServer(this.#setting)
    this.#processes.apiServer = apiServer
    await apiServer.waitUntil(() => this.#answers('/readyz'), readyTimeoutMs)
  }

  async restartControllerManager(): Promise<void> {
    await this.#processes.controllerManager?.stop(graceMs)
    await this.#startControllerManager()
  }

  logs(): string {
    const running = Object.values(this.#processes)
    return running.map((process) => `${process.name}:\n${process.logs()}\n`).join('\n')
  }

  stop(): Promise<void> {
    return (this.#stopping ??= this.#stop())
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  async #stop(): Promise<void> {
    const { etcd, apiServer, controllerManager } = this.#processes
    await controllerManager?.stop(graceMs)
    // Without etcd its shutdown would never end.
    await apiServer?.stop(graceMs)
    await etcd?.stop(graceMs)
    await rm(this.#setting.folder, { recursive: true, force: true })
  }

  async #startApiServerOnFreePort(attempt = 1): Promise<void> {
    this.#setting.port = await freePort()
    try {
      await this.startApiServer()
    } catch (err) {
      const taken = err instanceof Error && err.message.includes('address already in use')
      if (!taken || attempt === portAttempts) throw err
      await this.#startApiServerOnFreePort(attempt + 1)
    }
  }

  async #startControllerManager(): Promise<void> {
    const controllerManager = await startControllerManager(this.#setting)
    this.#processes.controllerManager = controllerManager
    const serviceAccount = '/api/v1/namespaces/default/serviceaccounts/default'
    await controllerManager.waitUntil(() => this.#answers(serviceAccount), readyTimeoutMs)
  }

  #answers(path: string): Promise<boolean> {
    const { url } = this
    return answers({ url, authority: this.#setting.credentials.authority.certificate, client: this.#client }, path)
  }
}
