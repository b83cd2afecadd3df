import { proxyWithCredentials } from '../../source/transport/proxy.ts'
import { trustedRoots } from '../../source/transport/dispatcher.ts'
import type { Access } from '../access/access.ts'
import { writeCredentialFiles } from '../credential-files.ts'
import { gitEnvironment, type GitHome } from '../environment.ts'
import { transportTo, type Endpoint } from './http.ts'
import type { GitConnection } from './remote.ts'

/**
 * Prepares native git for what our own requests do: the same trust, certificate, proxy and credentials. Certificates are in files until the connection is
 * released, as git reads them from nowhere else; what is a text to it is in its environment alone.
 */
export async function httpConnection(home: GitHome, endpoint: Endpoint, access: Access): Promise<GitConnection> {
  const { authorization } = access
  const { tls, proxy } = transportTo(endpoint, access)
  const config: Record<string, string> = {}
  if (authorization && endpoint.credentials)
    config[`http.${endpoint.base}.extraHeader`] = `Authorization: ${authorization}`
  if (proxy) {
    // With the plain name git would look up the server's address itself.
    config['http.proxy'] = proxyWithCredentials(proxy, proxy.url.startsWith('socks5:') ? 'socks5h' : undefined)
    config['http.proxyAuthMethod'] = 'basic'
  }
  const encrypted = endpoint.base.startsWith('https:') || proxy?.url.startsWith('https:')
  if (!encrypted) {
    return connection(home, endpoint, config, () => Promise.resolve())
  }
  const files = await writeCredentialFiles(home.run, {
    'ca.pem': [...trustedRoots(), tls?.ca ?? ''].join('\n'),
    ...(tls?.cert && tls.key ? { 'cert.pem': tls.cert, 'key.pem': tls.key } : {}),
  } as Record<'ca.pem' | 'cert.pem' | 'key.pem', string>)
  config['http.sslCAInfo'] = files.paths['ca.pem']
  config['http.proxySSLCAInfo'] = files.paths['ca.pem']
  if (tls?.cert) {
    config[`http.${endpoint.base}.sslCert`] = files.paths['cert.pem']
    config[`http.${endpoint.base}.sslKey`] = files.paths['key.pem']
  }
  return connection(home, endpoint, config, files.release)
}

function connection(
  home: GitHome,
  { base }: Endpoint,
  config: Record<string, string>,
  release: () => Promise<void>,
): GitConnection {
  return { url: base, env: gitEnvironment(home, { protocols: 'http:https', config }), release }
}
