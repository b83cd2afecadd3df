import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startGitServer } from '../../e2e/git-server.ts'
import { describeSource } from '../source/testing.ts'
import { defaultListingLimits as listingLimits } from './content/listing.ts'
import { makeMirrors } from './mirror/mirrors.ts'
import { makeGitSource } from './source.ts'

describeSource('GitRepository', async () => {
  const server = await startGitServer()
  const repository = await server.repository('app.git')
  const cacheFolder = await mkdtemp(join(tmpdir(), 'openflux-git-'))
  let files: string[] = []
  let rotations = 0
  return {
    source: makeGitSource({ mirrors: makeMirrors({ cacheFolder }), listingLimits }),
    spec: { url: `${server.url}/app.git`, interval: '1h', ref: { branch: 'main' } },
    async publish(content) {
      const removed = Object.fromEntries(files.filter((path) => !(path in content)).map((path) => [path, null]))
      files = Object.keys(content)
      await repository.commit({ ...removed, ...content }, 'publish')
    },
    async setDown(down) {
      server.behaviour.down = down
    },
    credentials: {
      specOf: (name) => ({ secretRef: { name } }),
      async rotate() {
        const [username, password] = ['user', `password-${++rotations}`]
        server.behaviour.auth = { user: username, password }
        return { username, password }
      },
      lift() {
        server.behaviour.auth = undefined
      },
    },
    async stop() {
      await server.stop()
      await rm(cacheFolder, { recursive: true, force: true })
    },
  }
})
