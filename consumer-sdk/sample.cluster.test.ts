import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { eventually } from '../controllers/runtime/eventually.ts'
import { LeaseKind } from '../controllers/runtime/lease.ts'
import { readmeSample } from './readme-sample.ts'
import { ConsumerRun } from './test-run.ts'

describe("the README's sample consumer as a process of its own", function () {
  this.timeout(120_000)
  let run: ConsumerRun
  let folder: string
  let child: ChildProcess | undefined

  beforeEach(async () => {
    run = await ConsumerRun.open()
    folder = await mkdtemp(join(tmpdir(), 'openflux-sample-'))
  })
  afterEach(async () => {
    child?.kill('SIGKILL')
    await run[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  it('leads, extracts, reports, and ends cleanly', async () => {
    const script = join(folder, 'extraction.ts')
    await writeFile(script, await readmeSample(join(import.meta.dirname, 'index.ts')))
    const flags = [
      `--kubeconfig=${run.kubeconfig}`,
      `--runtime-namespace=${run.namespace}`,
      '--watch-all-namespaces=false',
      '--metrics-addr=127.0.0.1:0',
      '--health-addr=127.0.0.1:0',
      '--enable-leader-election',
    ]
    child = spawn(process.execPath, [script, ...flags], {
      env: { PATH: process.env.PATH, HOME: folder, EXTRACTION_ROOT: run.root },
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    let log = ''
    child.stderr?.on('data', (chunk: Buffer) => (log += chunk.toString()))
    const artifact = await run.publish('app', { owners: [await run.configMap('app')], content: 'hello' })
    await run.create('x', { sourceRef: { apiVersion: 'v1', kind: 'ConfigMap', name: 'app' } })
    const done = await run.untilApplied('x', artifact)
    assert.equal(done.status?.files, 1)
    assert.equal(await run.content('x'), 'hello')

    const lease = () => run.admin.get(LeaseKind, { namespace: run.namespace, name: 'openflux-extraction' })
    assert.ok((await lease())?.spec?.holderIdentity)
    await eventually(async () => (await run.events('x', 'ReconciliationSucceeded')).length > 0)
    child.kill('SIGTERM')
    const [code] = await once(child, 'exit')
    assert.equal(code, 0, log)
    assert.equal((await lease())?.spec?.holderIdentity, '')
    assert.doesNotMatch(log, /forbidden|"level":"error"/)
  })
})
