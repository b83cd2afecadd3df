import { join } from 'node:path'
import { flag } from '../runtime/flags.ts'
import { sleep } from '../runtime/sleep.ts'
import { bytesArg } from '../source/flags.ts'
import { makeSourceModule } from '../source/index.ts'
import { defaultListingLimits } from './content/listing.ts'
import { makeMirrors } from './mirror/mirrors.ts'
import { makeGitSource } from './source.ts'

interface GitFlags {
  gitCachePath: string
  gitMaxRepositorySize: number
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
  },

  async addSources(host, flags, manager) {
    const mirrors = makeMirrors({
      cacheFolder: flags.gitCachePath || join(flags.storagePath, '.openflux', 'git'),
      maxRepositoryBytes: flags.gitMaxRepositorySize,
      warn: (message, url) => manager.log.info({ url }, message),
    })
    manager.background(async (signal) => {
      while (!signal.aborted) {
        await mirrors.sweep().catch((err: unknown) => manager.log.error({ error: err }, 'sweep of the mirrors failed'))
        await sleep(sweepMs, signal)
      }
    })
    const listingLimits = { ...defaultListingLimits, maxFiles: flags.artifactMaxEntries }
    host.add(makeGitSource({ mirrors, listingLimits }))
  },
})
