import { hostname } from 'node:os'
import { Command, InvalidArgumentError, Option } from 'commander'
import { parseDuration } from './duration.ts'
import { inClusterNamespace } from './kube-config.ts'
import { type LogEncoding, logEncodings, type LogLevel, logLevels } from './log.ts'

/** The flags of every controller. Names and defaults are Flux's; each can be given by the environment variable of the same name in capitals. */
export interface RuntimeFlags {
  kubeconfig?: string
  metricsAddr: string
  healthAddr: string
  eventsAddr: string
  watchAllNamespaces: boolean
  watchLabelSelector: string
  runtimeNamespace: string
  concurrent: number
  minRetryDelay: number
  maxRetryDelay: number
  requeueDependency: number
  intervalJitterPercentage: number
  noCrossNamespaceRefs: boolean
  enableLeaderElection: boolean
  leaderElectionLeaseDuration: number
  leaderElectionRenewDeadline: number
  leaderElectionRetryPeriod: number
  takeOver: boolean
  fluxNamespace: string
  logLevel: LogLevel
  logEncoding: LogEncoding
  featureGates: FeatureGates
  defaultServiceAccount: string
  tokenCacheMaxSize: number
  tokenCacheMaxDuration: number
}

/** What is off unless it is asked for; the names are Flux's. */
export interface FeatureGates {
  /** Nothing to switch here: Secrets are never cached. */
  CacheSecretsAndConfigMaps: boolean
  /** Objects may name a service account whose identity at a cloud provider they use. */
  ObjectLevelWorkloadIdentity: boolean
}

const noFeatureGates: FeatureGates = { CacheSecretsAndConfigMaps: false, ObjectLevelWorkloadIdentity: false }

/** A parser of `Name=true,Other=false`, for `argParser`. */
function featureGatesArg(text: string): FeatureGates {
  const gates = { ...noFeatureGates }
  for (const pair of text.split(',').filter(Boolean)) {
    const [name = '', value] = pair.split('=').map((part) => part.trim())
    if (!Object.hasOwn(gates, name)) throw new InvalidArgumentError(`there is no feature gate '${name}'`)
    if (value !== 'true' && value !== 'false') throw new InvalidArgumentError(`'${name}' is neither true nor false`)
    gates[name as keyof FeatureGates] = value === 'true'
  }
  return gates
}

/** An option whose environment variable is its name in capitals, or `env` where Flux has another. */
export function flag(name: string, description: string, env?: string): Option {
  const option = new Option(name, description)
  return option.env(env ?? option.name().toUpperCase().replaceAll('-', '_'))
}

/** A parser of Go durations to ms, for `argParser`. */
export function durationArg(text: string): number {
  const ms = parseDuration(text)
  if (ms === undefined) throw new InvalidArgumentError('not a duration like 30s or 1m30s')
  return ms
}

/** A parser of whole numbers within bounds, for `argParser`. */
export function integerArg(min: number, max = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (!/^\d+$/.test(text) || value < min || value > max)
      throw new InvalidArgumentError(`not a whole number from ${min} to ${max}`)
    return value
  }
}

/** `true` and `false` behind a flag, as Go's have it: `--watch-all-namespaces=false`. A flag without a value means true. */
export function booleanFlag(name: string, description: string, value: boolean, env?: string): Option {
  const option = flag(`--${name} [boolean]`, description, env)
  option.negate = false // commander reads `--no-x` as the negation of `x`; here it is a name like any other
  return option
    .default(value)
    .preset('true')
    .argParser((text: string) => {
      if (text !== 'true' && text !== 'false') throw new InvalidArgumentError('neither true nor false')
      return text === 'true'
    })
}

/** A command with the flags of RuntimeFlags; kinds add theirs. */
export function makeCommand(name: string, description: string): Command {
  const command = new Command(name).description(description)
  const namespace = inClusterNamespace() ?? 'openflux-system'
  for (const option of [
    // KUBECONFIG may list several files, which only client-node's own default reads.
    new Option('--kubeconfig <path>', 'kubeconfig file; without it, KUBECONFIG or the service account'),
    flag('--metrics-addr <address>', 'where /metrics is served').default(':8080'),
    flag('--health-addr <address>', 'where /healthz and /readyz are served').default(':9440'),
    flag('--events-addr <url>', "URL of Flux's notification-controller, empty for none").default(''),
    booleanFlag('watch-all-namespaces', 'watch all namespaces, or only the runtime namespace', true),
    flag(
      '--watch-label-selector <selector>',
      'watch only objects with these labels, e.g. sharding.fluxcd.io/key=shard1',
    ).default(''),
    flag('--runtime-namespace <name>', 'the namespace this runs in; leases are there').default(namespace),
    flag('--concurrent <n>', 'passes at once per kind').argParser(integerArg(1, 1000)).default(2),
    flag('--min-retry-delay <duration>', 'the first wait after a failure').argParser(durationArg).default(750, '750ms'),
    flag('--max-retry-delay <duration>', 'the longest wait after failures')
      .argParser(durationArg)
      .default(900_000, '15m'),
    flag('--requeue-dependency <duration>', 'the wait for something that is not there yet')
      .argParser(durationArg)
      .default(30_000, '30s'),
    flag('--interval-jitter-percentage <n>', 'how much intervals vary, up and down')
      .argParser(integerArg(0, 99))
      .default(5),
    booleanFlag('no-cross-namespace-refs', 'refuse references to other namespaces', true),
    booleanFlag('enable-leader-election', 'let one of several replicas write', false),
    flag('--leader-election-lease-duration <duration>', 'how long others wait before they take over')
      .argParser(durationArg)
      .default(35_000, '35s'),
    flag('--leader-election-renew-deadline <duration>', 'how long a leader tries to renew')
      .argParser(durationArg)
      .default(30_000, '30s'),
    flag('--leader-election-retry-period <duration>', 'pause between tries')
      .argParser(durationArg)
      .default(5_000, '5s'),
    booleanFlag('take-over', "start although Flux's own controller still renews its lease", false),
    flag('--flux-namespace <name>', "where Flux's lease is looked for").default('flux-system'),
    flag('--log-level <level>', 'how much is logged').choices(logLevels).default('info'),
    flag('--log-encoding <encoding>', 'how it is logged').choices(logEncodings).default('json'),
    flag('--feature-gates <gates>', `Name=true,…, of ${Object.keys(noFeatureGates).join(', ')}`)
      .argParser(featureGatesArg)
      .default(noFeatureGates, 'all off'),
    flag(
      '--default-service-account <name>',
      'whose identity at a cloud provider objects use that name none; needs ObjectLevelWorkloadIdentity',
    ).default(''),
    flag('--token-cache-max-size <n>', 'how many tokens of providers are kept, 0 for none')
      .argParser(integerArg(0))
      .default(100),
    flag('--token-cache-max-duration <duration>', 'how long one is kept at most')
      .argParser(durationArg)
      .default(3_600_000, '1h'),
  ])
    command.addOption(option)
  return command
}

/** Unique to this process, and telling for who reads a lease. */
export function processIdentity(): string {
  return `${hostname()}_${process.pid}_${Math.random().toString(36).slice(2, 10)}`
}
