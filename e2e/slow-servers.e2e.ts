import { startGitServer } from './git-server.ts'
import { assertServes, Story } from './story.ts'

describe('servers that answer for ever', () => {
  it('keep no other object waiting, however patient those are that ask them', async () => {
    const story = await Story.open()
    const slow = await startGitServer({ dripMs: 200 })
    try {
      await (await slow.repository('app.git')).commit({ 'a.yaml': 'a' }, 'x')
      await (await story.repository('app.git')).commit({ 'app.yaml': 'a: 1\n' }, 'first')
      await story.startController({ flags: ['--concurrent=2'] })
      for (let i = 0; i < 4; i++) await story.apply(`slow-${i}`, { url: `${slow.url}/app.git`, timeout: '30000m' })
      await story.apply('good')
      await assertServes((await story.ready('good')).status.artifact)
    } finally {
      await story.close()
      await slow.stop()
    }
  })
})
