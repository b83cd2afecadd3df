import { hostname } from 'node:os'
import { type Command, InvalidArgumentError } from 'commander'
import { parseAddress } from '../runtime/probes.ts'
import { durationArg, flag, integerArg } from '../runtime/flags.ts'

/** The flags of every process that stores artifacts. Names and defaults are Flux's where Flux has them. */
export interface StorageFlags {
  storagePath: string
  storageAddr: string
  storageAdvAddr: string
  artifactRetentionTtl: number
  artifactRetentionRecords: number
  artifactDigestAlgo: 'sha256' | 'sha384' | 'sha512' | 'blake3'
  artifactGzip: 'members' | 'single'
  artifactMaxEntries: number
  artifactMaxSize: number
  artifactMaxFileSize: number
  artifactMemoryCache: number
}

export function addStorageFlags(command: Command): void {
  // Another kind of the same process has added them.
  if (command.options.some((option) => option.long === '--storage-path')) return
  for (const option of [
    flag('--storage-path <folder>', 'where artifacts are stored; made if it is not there').default('/data'),
    flag('--storage-addr <address>', 'where they are served', 'STORAGE_ADDRESS').default(':9090'),
    flag(
      '--storage-adv-addr <address>',
      'the address others reach them at; without it, that of --storage-addr',
      'STORAGE_ADV_ADDR',
    ).default(''),
    flag('--artifact-retention-ttl <duration>', 'how long a superseded artifact is kept at least')
      .argParser(durationArg)
      .default(60_000, '60s'),
    flag('--artifact-retention-records <n>', 'how many artifacts of an object are kept at least')
      .argParser(integerArg(1))
      .default(2),
    flag('--artifact-digest-algo <name>', 'the checksum of artifacts')
      .choices(['sha256', 'sha384', 'sha512', 'blake3'])
      .default('sha256'),
    flag(
      '--artifact-gzip <form>',
      'members: only what has changed is compressed again; single: for readers of one member',
    )
      .choices(['members', 'single'])
      .default('members'),
    flag('--artifact-max-entries <n>', 'the most files an artifact may have').argParser(integerArg(1)).default(500_000),
    flag('--artifact-max-size <bytes>', 'the most bytes its files may have together')
      .argParser(bytesArg)
      .default(4 * 2 ** 30, '4Gi'),
    flag('--artifact-max-file-size <bytes>', 'the most bytes one file may have')
      .argParser(bytesArg)
      .default(2 ** 30, '1Gi'),
    flag(
      '--artifact-memory-cache <bytes>',
      'how much of the artifacts may be kept in memory to be served, 0 for nothing',
    )
      .argParser(bytesArg)
      .default(64 * 2 ** 20, '64Mi'),
  ])
    command.addOption(option)
}

const byteUnits: Record<string, number> = {
  '': 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
}

/** A parser of sizes as Kubernetes quantities have them (`512Mi`, `2G`, `1000`), in bytes, for `argParser`. */
export function bytesArg(text: string): number {
  const match = /^(\d{1,12})([kMGT]|[KMGT]i)?$/.exec(text)
  const bytes = Number(match?.[1]) * (byteUnits[match?.[2] ?? ''] ?? NaN)
  if (!match || !Number.isSafeInteger(bytes)) throw new InvalidArgumentError('not a size in bytes like 512Mi')
  return bytes
}

/**
 * The URL under which stored files are reached, without a trailing slash: the advertised address (a scheme in it is kept), else the listening one
 * with `localhost` for no host and the host's name for 0.0.0.0, as Flux has it. `port` is the one really listened on.
 */
export function advertisedUrl(flags: Pick<StorageFlags, 'storageAddr' | 'storageAdvAddr'>, port: number): string {
  const advertised = flags.storageAdvAddr.replace(/\/+$/, '')
  if (advertised) return /^https?:\/\//.test(advertised) ? advertised : `http://${advertised}`
  const { host = 'localhost' } = parseAddress(flags.storageAddr)
  const name = host === '0.0.0.0' || host === '::' ? (process.env.HOSTNAME ?? hostname()) : host
  return `http://${name.includes(':') ? `[${name}]` : name}:${port}`
}
