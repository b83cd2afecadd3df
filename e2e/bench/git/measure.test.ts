import assert from 'node:assert/strict'
import { startGitServer, type GitServer } from '../../git-server.ts'
import { costOfScript } from './measure.ts'

describe('the cost of a script', function () {
  this.timeout(60_000)
  let git: GitServer

  before(async () => void (git = await startGitServer()))
  after(() => git.stop())

  it('is that of all it does, from its first moment on, and of the programs it starts', async () => {
    const burn = 'end=$(($(date +%s%N) + 200000000)); while [ $(date +%s%N) -lt $end ]; do :; done'
    const { wallMs, cpuSeconds, peakMemoryBytes } = await costOfScript(burn, [], { git, cpus: undefined })
    assert.ok(wallMs >= 200, `${wallMs} ms`)
    assert.ok(cpuSeconds > 0 && peakMemoryBytes > 0)
    const asked = await costOfScript('git ls-remote -- "$1" || true', [`${git.url}/none.git`], { git, cpus: undefined })
    assert.ok(asked.upstreamRequests >= 1 && asked.upstreamBytes > 0)
  })

  it('is none where it fails', async () => {
    await assert.rejects(
      costOfScript('echo what is wrong >&2; false', [], { git, cpus: undefined }),
      /the floor's script failed:\nwhat is wrong/,
    )
  })
})
