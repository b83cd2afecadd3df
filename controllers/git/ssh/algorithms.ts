import { spawnSync } from 'node:child_process'
import { InvalidArgumentError } from 'commander'

/**
 * A parser of lists like `curve25519-sha256,ecdh-sha2-nistp256` for `argParser`; a repeated flag adds to its list. Names that `ssh -Q <kind>` does not
 * list are refused: ssh would fail on them at every connection.
 */
export function algorithmsArg(kind: 'kex' | 'HostKeyAlgorithms') {
  return (text: string, previous: readonly string[] | undefined): string[] => {
    const names = text === '' ? [] : text.split(',').map((name) => name.trim())
    const malformed = names.find((name) => !/^[a-z0-9][a-z0-9.@-]*$/i.test(name))
    if (malformed !== undefined) throw new InvalidArgumentError(`'${malformed}' is no name of an algorithm`)
    const known = knownToSsh(kind)
    const unknown = names.find((name) => !known.has(name))
    if (unknown !== undefined) throw new InvalidArgumentError(`ssh knows no '${unknown}' (ssh -Q ${kind})`)
    return [...(previous ?? []), ...names]
  }
}

function knownToSsh(kind: string): Set<string> {
  const { error, status, stdout } = spawnSync('ssh', ['-Q', kind], { encoding: 'utf8', timeout: 10_000 })
  if (error || status !== 0) throw new InvalidArgumentError(`'ssh -Q ${kind}' fails`)
  return new Set(stdout.split('\n'))
}
