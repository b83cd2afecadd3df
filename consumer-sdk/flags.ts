import { Command } from 'commander'
import { durationArg, flag, integerArg } from '../controllers/runtime/flags.ts'
import type { FetchLimits } from './fetch.ts'
import type { ExtractLimits } from './extract.ts'

/** The flags of every process that downloads artifacts. */
export interface ConsumerFlags {
  httpRetry: number
  downloadTimeout: number
  downloadMaxBytes: number
  extractMaxBytes: number
  extractMaxEntries: number
  sourceControllerLocalhost: string
}

/** Adds them to a command, once. The last one has its name from the environment variable that stock consumers of Flux read. */
export function addConsumerFlags(command: Command): void {
  if (command.options.some((option) => option.long === '--http-retry')) return
  for (const option of [
    flag('--http-retry <n>', 'how often a failed download is tried again').argParser(integerArg(0, 100)).default(9),
    flag('--download-timeout <duration>', 'how long one download may take with all retries')
      .argParser(durationArg)
      .default(300_000, '5m'),
    flag('--download-max-bytes <n>', 'the largest artifact that is downloaded')
      .argParser(integerArg(1))
      .default(2 ** 30),
    flag('--extract-max-bytes <n>', 'the most bytes an artifact may unpack to')
      .argParser(integerArg(1))
      .default(4 * 2 ** 30),
    flag('--extract-max-entries <n>', 'the most files and folders an artifact may unpack to')
      .argParser(integerArg(1))
      .default(1_000_000),
    flag('--source-controller-localhost <host>', 'download from this host:port, whatever the URL says').default(''),
  ])
    command.addOption(option)
}

/** The values that defaults and environment give, for a process without a command line of its own. */
export function defaultConsumerFlags(): ConsumerFlags {
  const command = new Command()
  addConsumerFlags(command)
  return command.parse([], { from: 'user' }).opts<ConsumerFlags>()
}

export function fetchLimits(flags: ConsumerFlags): FetchLimits {
  return {
    retries: flags.httpRetry,
    timeoutMs: flags.downloadTimeout,
    maxBytes: flags.downloadMaxBytes,
    host: flags.sourceControllerLocalhost,
  }
}

export function extractLimits(flags: ConsumerFlags): ExtractLimits {
  return { maxBytes: flags.extractMaxBytes, maxEntries: flags.extractMaxEntries }
}
