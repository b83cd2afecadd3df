import { findBinaries } from './binary.ts'
import { LocalControlPlane } from './local-control-plane.ts'

export { findBinaries, type Binaries } from './binary.ts'

/** What may differ from one control plane to the next. */
export interface ControlPlaneOptions {
  /**
   * Files or folders with CRDs. Installed before the garbage collector starts, which would otherwise need up to 30 s to learn
   * of them (`restartControllerManager` helps later).
   */
  crds?: readonly string[] | undefined
}

/** A real Kubernetes API on the loopback, without nodes: nothing runs, and nobody sets the status of Deployments. */
export interface ControlPlane extends AsyncDisposable {
  /** File with the credentials of a cluster administrator (group system:masters). */
  readonly kubeconfig: string
  readonly url: string
  /** Path of a kubectl of the same version. */
  readonly kubectl: string
  /** Process numbers of etcd, kube-apiserver and kube-controller-manager, as far as they run. */
  readonly pids: number[]
  /** Writes a kubeconfig for another user, who may do nothing until RBAC says so; resolves with its path. */
  userKubeconfig(name: string, groups?: readonly string[]): Promise<string>
  /** Ends the API server as an upgrade does, leaves it down for `downMs`, starts it on the same port; data stays. */
  restartApiServer(downMs?: number): Promise<void>
  /** SIGKILL; resolves when it is dead. */
  killApiServer(): Promise<void>
  /** Starts a killed API server on the same port; resolves when it is ready. */
  startApiServer(): Promise<void>
  restartControllerManager(): Promise<void>
  /** The output of all processes, for a failed test. */
  logs(): string
  /** Ends all processes and removes their data. */
  stop(): Promise<void>
}

/**
 * Starts etcd, kube-apiserver and kube-controller-manager (in seconds, but some minutes when the programs must be built
 * first) and resolves when the default namespace has its service account. The processes end with this one, however it
 * ends. Throws with the end of the log of the process that failed.
 */
export async function startControlPlane(options: ControlPlaneOptions = {}): Promise<ControlPlane> {
  const binaries = await findBinaries()
  const controlPlane = await LocalControlPlane.prepare(binaries)
  try {
    await controlPlane.start(options)
  } catch (err) {
    await controlPlane.stop()
    throw err
  }
  return controlPlane
}
