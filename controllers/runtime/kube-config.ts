import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { RequestOptions } from 'node:https'
import { type HttpMethod, KubeConfig, RequestContext } from '@kubernetes/client-node'
import { Agent, type Dispatcher } from 'undici'

/** Where the API server is and how a request proves who sends it. */
export interface Credentials {
  /** Base URL of the API server without a trailing slash. */
  server: string
  dispatcher: Dispatcher
  headers: Record<string, string>
}

/** Gives credentials for the next request. They are read again when old, so that rotated tokens and certificates are picked up. */
export type CredentialSource = (refresh?: boolean) => Promise<Credentials>

/** In-cluster tokens are rotated by the kubelet about hourly and exec plugins answer at once while theirs is good. */
const maxAgeMs = 60_000

/** Reads the kubeconfig named by `path`, by `KUBECONFIG`, or the service account's (in this order). Throws where none is usable. */
export function loadKubeConfig(path: string | undefined): KubeConfig {
  const config = new KubeConfig()
  if (path) config.loadFromFile(path)
  else config.loadFromDefault()
  if (!config.getCurrentCluster()) throw new Error('no cluster in the kubeconfig: set --kubeconfig or KUBECONFIG')
  return config
}

/** The namespace of the service account this process runs as, or undefined outside a cluster. */
export function inClusterNamespace(): string | undefined {
  try {
    return readFileSync('/var/run/secrets/kubernetes.io/serviceaccount/namespace', 'utf8').trim() || undefined
  } catch {
    return undefined // not in a cluster
  }
}

/** Credentials from a kubeconfig, through client-node so that every way of authentication it knows works. */
export function credentialsFrom(config: KubeConfig): CredentialSource {
  let current: (Credentials & { identity: string; readAt: number }) | undefined
  let reading: Promise<Credentials> | undefined

  async function read(): Promise<Credentials> {
    const server = config.getCurrentCluster()?.server.replace(/\/+$/, '') ?? ''
    const context = new RequestContext(server, 'GET' as HttpMethod)
    await config.applySecurityAuthentication(context)
    const identity = await tlsIdentity(config)
    // A new dispatcher means new connections: keep the old one unless certificates have changed.
    const dispatcher = current?.identity === identity ? current.dispatcher : (context.getDispatcher() ?? new Agent())
    current = { server, dispatcher, headers: context.getHeaders(), identity, readAt: performance.now() }
    return current
  }

  return (refresh = false) => {
    if (current && !refresh && performance.now() - current.readAt < maxAgeMs) return Promise.resolve(current)
    reading ??= read().finally(() => (reading = undefined))
    return reading
  }
}

/** A digest of whatever decides on the TLS connection. */
async function tlsIdentity(config: KubeConfig): Promise<string> {
  const options: RequestOptions = {}
  await config.applyToHTTPSOptions(options)
  const hash = createHash('sha256')
  for (const part of [options.ca, options.cert, options.key]) hash.update(JSON.stringify(part ?? null))
  return hash.digest('hex')
}
