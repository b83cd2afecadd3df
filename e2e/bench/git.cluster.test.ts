import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Row } from './report.ts'

const run = promisify(execFile)
const project = join(import.meta.dirname, '../..')

interface Output {
  benchmark: string
  setting: { arms: { name: string; command: string }[] }
  rows: Row[]
}

async function bench(...args: string[]): Promise<Output> {
  const main = join(project, 'e2e/bench/main.ts')
  const { stdout } = await run(process.execPath, [main, 'git', '--quick', '--storage', 'disk', ...args])
  return JSON.parse(stdout) as Output
}

function figure({ arms }: Row, arm: string, name: string): number {
  const value = arms[arm]?.[name]
  assert.equal(typeof value, 'number', `${arm}.${name} is ${String(value)}`)
  return Number(value)
}

describe('npm run bench -- git', () => {
  it('measures all arms, compares what they made, and prints one JSON object', async () => {
    const peer =
      `${process.execPath} ${join(project, 'controllers/git/main.ts')} --storage-path={storage} --storage-addr={addr} ` +
      '--storage-adv-addr={addr} --health-addr={health} --metrics-addr={metrics}'
    const { benchmark, rows, setting } = await bench('--rows', '1,3,4,6', '--peer', peer)
    assert.equal(benchmark, 'git')
    assert.equal(setting.arms[1]?.command, peer)
    assert.deepEqual(
      rows.map(({ name }) => name),
      [
        'no-change poll, branch',
        'no-change poll, tag',
        'no-change poll, name',
        'no-change poll, semver',
        'no-change poll, branch, server of version 0',
        'one-line commit to Artifact',
        '4 objects on one repository',
        'event-loop lag during the first artifact',
      ],
    )
    const [branch, , , semver, , commit, many, lag] = rows as [Row, Row, Row, Row, Row, Row, Row, Row]
    for (const arm of ['ours', 'peer', 'floor']) {
      // An answer with one ref of 200, and one with all tags.
      assert.ok(figure(branch, arm, 'upstreamRequestsPerPoll') >= 1)
      assert.ok(figure(semver, arm, 'upstreamBytesPerPoll') > figure(branch, arm, 'upstreamBytesPerPoll'))
      for (const name of ['wallMs', 'peakMemoryMiB', 'upstreamBytes']) assert.ok(figure(commit, arm, name) > 0)
      // Manifests of 500 kB cannot come in fewer.
      assert.ok(figure(many, arm, 'upstreamBytes') > 50_000)
      for (const { ratios } of rows.slice(0, -1))
        assert.ok(arm === 'ours' || ratios.some(({ name }) => name.endsWith(`/${arm}`)))
    }
    assert.ok(figure(many, 'ours', 'diskOfOneObject') >= 1)
    // A timer a millisecond while an artifact is made, so that a percentile means something.
    assert.ok(figure(lag, 'ours', 'samples') >= 20)
    assert.ok(figure(lag, 'ours', 'maxMs') >= figure(lag, 'ours', 'p99Ms'))
  })

  it('says what is wrong with a command line', async () => {
    await assert.rejects(bench('--rows', '9'), /there is no row 9/)
  })
})
