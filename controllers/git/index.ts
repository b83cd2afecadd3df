import { join } from 'node:path'
import { flag } from '../runtime/flags.ts'
import { sleep } from '../runtime/sleep.ts'
import { bytesArg } from '../source/flags.ts'
import { makeIdentity } from '../source/identity/identity.ts'
import { makeSourceModule } from '../source/index.ts'
import { defaultListingLimits } from './content/listing.ts'
import { makeMirrors } from './mirror/mirrors.ts'
import { makeGitSource } from './source.ts'
import { algorithmsArg } from './ssh/algorithms.ts'

interface GitFlags {
  gitCachePath: string
  gitMaxRepositorySize: number
  gitCacheMaxSize: number
  sshKexAlgos?: string[]
  sshHostkeyAlgos?: string[]
}

const sweepMs = 3_600_000

/** The git controller. */
export const git = makeSourceModule<GitFlags>({
  name: 'git',

  addFlags(command) {
    command.addOption(
      flag('--git-cache-path <folder>', 'where mirrors of repositories are kept; in the storage without it').default(
        '',
      ),
    )
    command.addOption(
      flag('--git-max-repository-size <bytes>', 'the most bytes one mirror may take')
        .argParser(bytesArg)
        .default(4 * 2 ** 30, '4Gi'),
    )
    command.addOption(
      flag('--git-cache-max-size <bytes>', 'the most bytes all mirrors may take together')
        .argParser(bytesArg)
        .default(20 * 2 ** 30, '20Gi'),
    )
    command.addOption(
      flag('--ssh-kex-algos <names>', 'how keys may be exchanged over ssh, in order').argParser(algorithmsArg('kex')),
    )
    command.addOption(
      flag('--ssh-hostkey-algos <names>', 'how hosts may prove their keys over ssh, in order').argParser(
        algorithmsArg('HostKeyAlgorithms'),
      ),
    )
  },

  async addSources(host, flags, manager) {
    const identity = makeIdentity(flags)
    const mirrors = makeMirrors({
      cacheFolder: flags.gitCachePath || join(flags.storagePath, '.openflux', 'git'),
      maxRepositoryBytes: flags.gitMaxRepositorySize,
      maxBytes: flags.gitCacheMaxSize,
      sshAlgorithms: { kex: flags.sshKexAlgos, hostKey: flags.sshHostkeyAlgos },
      warn: (message, url) => manager.log.info({ url }, message),
    })
    manager.background(async (signal) => {
      while (!signal.aborted) {
        await mirrors.sweep().catch((err: unknown) => manager.log.error({ error: err }, 'sweep of the mirrors failed'))
        await sleep(sweepMs, signal)
      }
    })
    const listingLimits = { ...defaultListingLimits, maxFiles: flags.artifactMaxEntries }
    host.add(makeGitSource({ mirrors, listingLimits, maxLfsBytes: flags.gitMaxRepositorySize, identity }))
  },
})
