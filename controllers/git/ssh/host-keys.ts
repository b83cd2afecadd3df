import { knownKeysOf } from './known-hosts.ts'

const certificates = [
  'ssh-ed25519-cert-v01@openssh.com',
  'ecdsa-sha2-nistp256-cert-v01@openssh.com',
  'ecdsa-sha2-nistp384-cert-v01@openssh.com',
  'ecdsa-sha2-nistp521-cert-v01@openssh.com',
  'rsa-sha2-512-cert-v01@openssh.com',
  'rsa-sha2-256-cert-v01@openssh.com',
]

/** How a server may prove that it has a key, by the key's type; in ssh's own order of preference. RFC 8332 for RSA. */
const algorithmsByType: Record<string, readonly string[]> = {
  'ssh-ed25519': ['ssh-ed25519'],
  'ecdsa-sha2-nistp256': ['ecdsa-sha2-nistp256'],
  'ecdsa-sha2-nistp384': ['ecdsa-sha2-nistp384'],
  'ecdsa-sha2-nistp521': ['ecdsa-sha2-nistp521'],
  'ssh-rsa': ['rsa-sha2-512', 'rsa-sha2-256'],
}

/**
 * The algorithms for host keys by which a server can prove to be in `knownHosts`: it is asked for a key that is known there. `allowed`, where it names any, replaces
 * the default order, and alone lets in `ssh-rsa` (SHA-1). Throws an Error that says why there is none.
 */
export async function hostKeyAlgorithms(
  knownHosts: string,
  { host, port }: { host: string; port: number },
  allowed: readonly string[] = [],
): Promise<string[]> {
  const keys = await knownKeysOf(knownHosts, host, port)
  const shown = `'${port === 22 ? host : `[${host}]:${port}`}'`
  if (keys.length === 0) throw new Error(`knownhosts: no entry for ${shown}`)
  const revoked = new Set(keys.filter(({ marker }) => marker === 'revoked').map(({ key }) => key))
  const trusted = keys.filter(({ key }) => !revoked.has(key))
  if (trusted.length === 0) throw new Error(`knownhosts: the keys of ${shown} are revoked`)
  const possible = new Set<string>(trusted.some((key) => key.marker === 'cert-authority') ? certificates : [])
  const types = new Set(trusted.filter((key) => !key.marker).map((key) => key.type))
  for (const [type, algorithms] of Object.entries(algorithmsByType)) {
    if (types.has(type)) for (const algorithm of algorithms) possible.add(algorithm)
  }
  if (allowed.length > 0 && types.has('ssh-rsa')) possible.add('ssh-rsa')
  const usable = allowed.length > 0 ? allowed.filter((algorithm) => possible.has(algorithm)) : [...possible]
  if (usable.length > 0) return usable
  const by = allowed.length > 0 ? ' of those that --ssh-hostkey-algos allows' : ''
  throw new Error(`knownhosts: no usable type of key${by} for ${shown}`)
}
