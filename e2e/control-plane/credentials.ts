import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { makeAuthority, makeKeyPair, type Authority } from '../tools/certificates.ts'

/** Files that the programs are started with, and the authority that signs all users. */
export interface Credentials {
  folder: string
  authority: Authority
  authorityFile: string
  servingCertificate: string
  servingKey: string
  serviceAccountPublicKey: string
  serviceAccountPrivateKey: string
}

const hosts = ['localhost', 'kubernetes', 'kubernetes.default', 'kubernetes.default.svc', '127.0.0.1', '10.0.0.1']

/** Makes the authority, the API server's certificate and the key pair of service-account tokens, below `folder`. */
export async function makeCredentials(folder: string): Promise<Credentials> {
  await mkdir(folder, { mode: 0o700 })
  const authority = makeAuthority('openflux control plane')
  const serving = authority.issue({ commonName: 'kube-apiserver', hosts })
  const serviceAccounts = makeKeyPair()
  const write = async (name: string, content: string) => {
    const file = join(folder, name)
    await writeFile(file, content, { mode: 0o600 })
    return file
  }
  return {
    folder,
    authority,
    authorityFile: await write('ca.crt', authority.certificate),
    servingCertificate: await write('server.crt', serving.certificate),
    servingKey: await write('server.key', serving.key),
    serviceAccountPublicKey: await write('service-accounts.pub', serviceAccounts.publicKey),
    serviceAccountPrivateKey: await write('service-accounts.key', serviceAccounts.privateKey),
  }
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}

/** Who the API server takes a client for. */
export interface User {
  name: string
  groups?: readonly string[] | undefined
}

/** Writes a kubeconfig with a client certificate for the user and returns its path. Names may hold any character. */
export async function writeKubeconfig(credentials: Credentials, url: string, user: User): Promise<string> {
  const { authority, folder } = credentials
  const { certificate, key } = authority.issue({ commonName: user.name, organizations: user.groups })
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [
      { name: 'openflux', cluster: { server: url, 'certificate-authority-data': base64(authority.certificate) } },
    ],
    users: [
      { name: user.name, user: { 'client-certificate-data': base64(certificate), 'client-key-data': base64(key) } },
    ],
    contexts: [{ name: 'openflux', context: { cluster: 'openflux', user: user.name } }],
    'current-context': 'openflux',
  }
  const file = join(folder, `${encodeURIComponent(user.name)}-${crypto.randomUUID().slice(0, 8)}.kubeconfig`)
  // JSON is YAML.
  await writeFile(file, `${JSON.stringify(config, null, 2)}\n`, { mode: 0o600 })
  return file
}
