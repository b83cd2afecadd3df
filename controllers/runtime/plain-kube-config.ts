import { existsSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { delimiter, dirname, join, resolve } from 'node:path'
import { load } from 'js-yaml'

/** Where the API server is, and from which files or texts the proof of who asks comes. */
export interface PlainKubeConfig {
  /** Without a trailing slash. */
  server: string
  ca?: Source
  cert?: Source
  key?: Source
  token?: Source
  servername?: string
  insecure?: boolean
}

/** A file, read again and again as it may be rotated, or its content. */
export type Source = { file: string } | { content: string }

type Fields = Record<string, unknown>

const serviceAccount = '/var/run/secrets/kubernetes.io/serviceaccount'
const clusterFields = [
  'server',
  'certificate-authority',
  'certificate-authority-data',
  'insecure-skip-tls-verify',
  'tls-server-name',
]
const userFields = [
  'client-certificate',
  'client-certificate-data',
  'client-key',
  'client-key-data',
  'token',
  'tokenFile',
]

/**
 * Reads the kubeconfig (kubectl's `v1 Config`) at `path`, in `KUBECONFIG` or in the home folder, else the service account's, in this order. Undefined
 * where there is none, or one that asks for more than certificates and tokens: plugins, proxies, several files.
 */
export function readPlainKubeConfig(path: string | undefined, env: NodeJS.ProcessEnv): PlainKubeConfig | undefined {
  const file = path || env['KUBECONFIG'] || join(homedir(), '.kube', 'config')
  if (existsSync(file)) return fromFile(file)
  return path || env['KUBECONFIG'] ? undefined : inCluster(env)
}

/** What a source holds now. */
export async function contentOf(source: Source | undefined): Promise<string | undefined> {
  if (!source) return undefined
  return 'file' in source ? await readFile(source.file, 'utf8') : source.content
}

function fromFile(file: string): PlainKubeConfig | undefined {
  if (file.includes(delimiter)) return undefined
  const config = asFields(load(readFileSync(file, 'utf8')))
  const context = named(config, 'contexts', config?.['current-context'], 'context')
  const cluster = named(config, 'clusters', context?.['cluster'], 'cluster')
  const user = named(config, 'users', context?.['user'], 'user')
  if (!cluster || !user || !hasOnly(cluster, clusterFields) || !hasOnly(user, userFields)) return undefined
  const { server, 'tls-server-name': servername } = cluster
  if (typeof server !== 'string' || !server.startsWith('https://')) return undefined
  const from = (fields: Fields, name: string) => sourceOf(fields, name, dirname(file))
  const { token: text, tokenFile } = user
  const token = typeof text === 'string' && text ? { content: text } : pathOf(tokenFile, dirname(file))
  return {
    server: server.replace(/\/+$/, ''),
    ...defined('ca', from(cluster, 'certificate-authority')),
    ...defined('cert', from(user, 'client-certificate')),
    ...defined('key', from(user, 'client-key')),
    ...defined('token', token),
    ...(typeof servername === 'string' && { servername }),
    ...(cluster['insecure-skip-tls-verify'] === true && { insecure: true }),
  }
}

function inCluster(env: NodeJS.ProcessEnv): PlainKubeConfig | undefined {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = env
  const token = { file: join(serviceAccount, 'token') }
  if (!host || !port || !existsSync(token.file)) return undefined
  const server = `https://${host.includes(':') ? `[${host}]` : host}:${port}`
  return { server, ca: { file: join(serviceAccount, 'ca.crt') }, token }
}

/** The data wins over the file, as for kubectl. */
function sourceOf(fields: Fields, name: string, folder: string): Source | undefined {
  const data = fields[`${name}-data`]
  if (typeof data === 'string' && data !== '') return { content: Buffer.from(data, 'base64').toString() }
  return pathOf(fields[name], folder)
}

function pathOf(file: unknown, folder: string): Source | undefined {
  return typeof file === 'string' && file !== '' ? { file: resolve(folder, file) } : undefined
}

function named(config: Fields | undefined, list: string, name: unknown, field: string): Fields | undefined {
  const items = config?.[list]
  if (!Array.isArray(items) || typeof name !== 'string') return undefined
  return asFields(items.map(asFields).find((item) => item?.['name'] === name)?.[field])
}

function asFields(value: unknown): Fields | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : undefined
}

function hasOnly(fields: Fields, known: readonly string[]): boolean {
  return Object.keys(fields).every((name) => known.includes(name))
}

function defined<K extends string>(key: K, value: Source | undefined): Partial<Record<K, Source>> {
  return value ? ({ [key]: value } as Record<K, Source>) : {}
}
