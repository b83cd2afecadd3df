import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { RequestOptions } from 'node:https'
import { createRequire } from 'node:module'
import type { HttpMethod, KubeConfig } from '@kubernetes/client-node'
import { Agent, type Dispatcher } from 'undici'
import { contentOf, type PlainKubeConfig, readPlainKubeConfig } from './plain-kube-config.ts'

/** Where the API server is and how a request proves who sends it. */
export interface Credentials {
  /** Base URL of the API server without a trailing slash. */
  server: string
  dispatcher: Dispatcher
  headers: Record<string, string>
}

/** Gives credentials for the next request. They are read again when old, so that rotated tokens and certificates are picked up. */
export type CredentialSource = (refresh?: boolean) => Promise<Credentials>

/** What is read: `identity` is equal for equal TLS connections. */
interface Reading extends Omit<Credentials, 'dispatcher'> {
  identity: string
  makeDispatcher: () => Dispatcher
}

/** In-cluster tokens are rotated by the kubelet about hourly and exec plugins answer at once while theirs is good. */
const maxAgeMs = 60_000

/**
 * Credentials by the kubeconfig named by `path`, by `KUBECONFIG`, in the home folder, or of the service account (in this order). Throws where none is
 * usable. client-node takes 57 MiB and half a second to load: it is only for what certificates and tokens alone do not do.
 */
export function loadCredentials(path: string | undefined): CredentialSource {
  const plain = readPlainKubeConfig(path, process.env)
  return cached(plain ? () => readPlain(plain) : clientNodeReader(path))
}

/** The namespace of the service account this process runs as, or undefined outside a cluster. */
export function inClusterNamespace(): string | undefined {
  try {
    return readFileSync('/var/run/secrets/kubernetes.io/serviceaccount/namespace', 'utf8').trim() || undefined
  } catch {
    return undefined // not in a cluster
  }
}

function cached(read: () => Promise<Reading>): CredentialSource {
  let current: (Credentials & { identity: string; readAt: number }) | undefined
  let reading: Promise<Credentials> | undefined

  async function renew(): Promise<Credentials> {
    const { makeDispatcher, ...found } = await read()
    // A new dispatcher means new connections: keep the old one unless certificates have changed.
    const dispatcher = current?.identity === found.identity ? current.dispatcher : makeDispatcher()
    current = { ...found, dispatcher, readAt: performance.now() }
    return current
  }

  return (refresh = false) => {
    if (current && !refresh && performance.now() - current.readAt < maxAgeMs) return Promise.resolve(current)
    reading ??= renew().finally(() => (reading = undefined))
    return reading
  }
}

async function readPlain(config: PlainKubeConfig): Promise<Reading> {
  const { server, servername, insecure } = config
  const [ca, cert, key, token] = await Promise.all([config.ca, config.cert, config.key, config.token].map(contentOf))
  const connect = {
    ...(ca && { ca }),
    ...(cert && { cert }),
    ...(key && { key }),
    ...(servername && { servername }),
    ...(insecure && { rejectUnauthorized: false }),
  }
  const headers: Record<string, string> = token ? { Authorization: `Bearer ${token.trim()}` } : {}
  return { server, headers, identity: digestOf([ca, cert, key]), makeDispatcher: () => new Agent({ connect }) }
}

function clientNodeReader(path: string | undefined): () => Promise<Reading> {
  const clientNode = createRequire(import.meta.url)(
    '@kubernetes/client-node',
  ) as typeof import('@kubernetes/client-node')
  const config: KubeConfig = new clientNode.KubeConfig()
  if (path) config.loadFromFile(path)
  else config.loadFromDefault()
  if (!config.getCurrentCluster()) throw new Error('no cluster in the kubeconfig: set --kubeconfig or KUBECONFIG')
  return async () => {
    const server = config.getCurrentCluster()?.server.replace(/\/+$/, '') ?? ''
    const context = new clientNode.RequestContext(server, 'GET' as HttpMethod)
    await config.applySecurityAuthentication(context)
    const options: RequestOptions = {}
    await config.applyToHTTPSOptions(options)
    return {
      server,
      headers: context.getHeaders(),
      identity: digestOf([options.ca, options.cert, options.key]),
      makeDispatcher: () => context.getDispatcher() ?? new Agent(),
    }
  }
}

/** Of whatever decides on the TLS connection. */
function digestOf(parts: readonly unknown[]): string {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(JSON.stringify(part ?? null))
  return hash.digest('hex')
}
