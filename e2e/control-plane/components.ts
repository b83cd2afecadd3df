import { join } from 'node:path'
import { startProcess, type SupervisedProcess } from '../tools/process.ts'
import type { Binaries } from './binary.ts'
import type { Credentials } from './credentials.ts'

/** What the three programs need to know of each other. */
export interface Setting {
  folder: string
  binaries: Binaries
  credentials: Credentials
  port: number
  controllerManagerKubeconfig: string
}

// The rest needs nodes or a cloud, or would act on Deployments and the like, whose status tests set themselves.
const controllers = [
  'clusterrole-aggregation-controller',
  'garbage-collector-controller',
  'namespace-controller',
  'root-ca-certificate-publisher-controller',
  'serviceaccount-controller',
  'serviceaccount-token-controller',
]

/** Where etcd listens, and nobody but this user can connect. */
export function etcdSocket(setting: Setting): string {
  return join(setting.folder, 'etcd.sock')
}

/** Starts etcd; its data lasts as long as the folder. */
export function startEtcd(setting: Setting): Promise<SupervisedProcess> {
  // Nobody dials what the only member advertises, but etcd wants it in this form.
  const nowhere = 'http://127.0.0.1:1'
  const flags = {
    'data-dir': join(setting.folder, 'etcd'),
    'listen-client-urls': `unix://${etcdSocket(setting)}`,
    'advertise-client-urls': nowhere,
    'listen-peer-urls': `unix://${join(setting.folder, 'peer.sock')}`,
    'initial-advertise-peer-urls': nowhere,
    'initial-cluster': `default=${nowhere}`,
    'unsafe-no-fsync': true,
    'quota-backend-bytes': 512 << 20,
    'snapshot-count': 10_000,
    'log-level': 'warn',
  }
  return startProcess({ name: 'etcd', command: setting.binaries.etcd, args: argumentsOf(flags), env: environment() })
}

/** Starts kube-apiserver on a port of the loopback. */
export function startApiServer(setting: Setting): Promise<SupervisedProcess> {
  const { credentials } = setting
  const flags = {
    'etcd-servers': `unix://${etcdSocket(setting)}`,
    'bind-address': '127.0.0.1',
    'advertise-address': '127.0.0.1',
    'secure-port': setting.port,
    // It would publish the loopback as an endpoint, which is not valid.
    'endpoint-reconciler-type': 'none',
    'service-cluster-ip-range': '10.0.0.0/24',
    'client-ca-file': credentials.authorityFile,
    'tls-cert-file': credentials.servingCertificate,
    'tls-private-key-file': credentials.servingKey,
    'service-account-issuer': 'https://kubernetes.default.svc.cluster.local',
    'service-account-key-file': credentials.serviceAccountPublicKey,
    'service-account-signing-key-file': credentials.serviceAccountPrivateKey,
    'authorization-mode': 'RBAC',
    'enable-admission-plugins': 'OwnerReferencesPermissionEnforcement',
    'allow-privileged': true,
    // Without it every open watch holds up the shutdown.
    'shutdown-watch-termination-grace-period': '1s',
    profiling: false,
  }
  const args = argumentsOf(flags)
  return startProcess({ name: 'kube-apiserver', command: setting.binaries.apiServer, args, env: environment() })
}

/** Starts kube-controller-manager with the few controllers that a cluster without nodes has use for. */
export function startControllerManager(setting: Setting): Promise<SupervisedProcess> {
  const { credentials } = setting
  const flags = {
    kubeconfig: setting.controllerManagerKubeconfig,
    controllers: controllers.join(','),
    'use-service-account-credentials': true,
    'service-account-private-key-file': credentials.serviceAccountPrivateKey,
    'root-ca-file': credentials.authorityFile,
    'leader-elect': false,
    'secure-port': 0,
    profiling: false,
  }
  const command = setting.binaries.controllerManager
  const args = argumentsOf(flags)
  return startProcess({ name: 'kube-controller-manager', command, args, env: environment() })
}

function argumentsOf(flags: Record<string, string | number | boolean>): string[] {
  return Object.entries(flags).map(([name, value]) => `--${name}=${value}`)
}

/** Little of the user's: etcd reads ETCD_* as flags, and a proxy must not stand between the programs. */
function environment(): NodeJS.ProcessEnv {
  const { PATH, HOME, TMPDIR } = process.env
  return { PATH, HOME, TMPDIR }
}
