import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { makeHasher } from '../digest.ts'
import { parseHistory } from './history.ts'
import { openStorage } from './storage.ts'
import { makeRandom, makeTempFolder } from '../test-support.ts'

const here = JSON.stringify(import.meta.dirname)

/** Stores, collects and sweeps in some folders as fast as it can, and prints the path and digest of all that was stored. */
const writer = `
  const { openStorage } = await import(${here} + '/storage.ts')
  const { entriesOf } = await import(${here} + '/../test-support.ts')
  const [root, folders, seed, rounds] = process.argv.slice(1)
  const storage = await openStorage({ root, retentionTtlMs: 5, retentionRecords: 1 })
  console.log('open')
  for (let i = 0; i < Number(rounds); i++) {
    await Promise.all(folders.split(',').map(async (folder) => {
      const content = String((Number(seed) * 7919 + i) % 50).repeat(20000)
      const entries = entriesOf({ 'a.txt': content, ['b' + i % 2]: content })
      const { artifact } = await storage.store(folder, 'r' + i, entries, { fileName: 'f' + i % 7 })
      console.log(artifact.path, artifact.digest, artifact.revision)
      await storage.collectGarbage(folder, artifact.path)
    }))
    if (i % 5 === 0) await storage.sweep('gitrepository', () => true)
  }`

function startWriter(root: string, folders: string[], seed: number, rounds = 1e9): ChildProcess & { lines: string[] } {
  const args = ['--input-type=module', '--eval', writer, root, folders.join(','), String(seed), String(rounds)]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const lines: string[] = []
  let rest = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n')
    rest = parts.pop() ?? ''
    lines.push(...parts)
  })
  return Object.assign(child, { lines })
}

function roundOf(revision = 'r-1'): number {
  return Number(revision.slice(1))
}

async function digestOf(file: string): Promise<string> {
  const hasher = await makeHasher('sha256')
  hasher.update(await readFile(file))
  return hasher.digest()
}

/** Every file that a log names is what the log says, and nothing unfinished is left. Gives the current file of each folder. */
async function checkAll(root: string): Promise<Map<string, string>> {
  const current = new Map<string, string>()
  for (const file of await readdir(root, { recursive: true })) {
    if (!file.endsWith('.history.json')) continue
    const folder = file.slice(0, -'/.history.json'.length)
    const entries = parseHistory(folder, await readFile(join(root, file), 'utf8'))
    const present = new Set(await readdir(join(root, folder)))
    for (const entry of entries.filter((each) => present.has(each.file))) {
      assert.equal(await digestOf(join(root, folder, entry.file)), entry.digest, `${folder}/${entry.file}`)
    }
    const last = entries.at(-1)!
    assert.ok(present.has(last.file), `${folder}/${last.file} is there`)
    current.set(folder, last.digest)
  }
  assert.deepEqual(await readdir(join(root, '.openflux/tmp')), [])
  return current
}

describe('storage after kill -9', function () {
  this.timeout(120_000)
  const folders = ['gitrepository/a/one', 'gitrepository/a/two', 'gitrepository/b/one']

  it('has every file that a log names as the log says, all that was reported stored, and nothing unfinished', async () => {
    await using temp = await makeTempFolder()
    const seed = Date.now() % 2 ** 31
    const random = makeRandom(seed)
    let unfinished = 0
    for (let kill = 0; kill < 20; kill++) {
      const child = startWriter(temp.path, folders, kill)
      while (child.lines.length === 0) await delay(5)
      await delay(random(300))
      child.kill('SIGKILL')
      await once(child, 'close')
      unfinished += (await readdir(join(temp.path, '.openflux/tmp'))).length

      const storage = await openStorage({ root: temp.path })
      const current = await checkAll(temp.path)
      for (const folder of folders) {
        const reported = child.lines.findLast((line) => line.startsWith(`${folder}/`))
        const latest = await storage.find(folder, 'latest')
        assert.equal(latest?.digest, current.get(folder), `seed ${seed}`)
        if (latest) assert.equal(await storage.check(latest), 'intact', `seed ${seed}`)
        const reportedRound = roundOf(reported?.split(' ').at(-1))
        assert.ok(
          roundOf(latest?.revision) >= reportedRound || reportedRound < 0,
          `seed ${seed}: ${folder} lost ${reported}`,
        )
      }
    }
    assert.ok(unfinished > 0, 'some were killed while they wrote')
  })
})

describe('storage shared by processes', function () {
  this.timeout(120_000)

  it('has one id', async () => {
    await using temp = await makeTempFolder()
    const random = makeRandom(1)
    for (let round = 0; round < 20; round++) {
      const root = join(temp.path, String(round))
      const opening = Array.from({ length: 10 }, async () => {
        await delay(random(4))
        return (await openStorage({ root })).id
      })
      const ids = new Set(await Promise.all(opening))
      assert.equal(ids.size, 1)
      assert.match([...ids].join(' '), /^[0-9a-f-]{36}$/)
    }
  })

  it('takes stores of the same bytes, collections and sweeps of two at once', async () => {
    await using temp = await makeTempFolder()
    const writers = [0, 1].map((n) =>
      startWriter(temp.path, [`gitrepository/team-${n}/a`, `gitrepository/team-${n}/b`], 0, 60),
    )
    await Promise.all(writers.map((child) => once(child, 'close')))
    assert.deepEqual(
      writers.map(({ exitCode }) => exitCode),
      [0, 0],
    )
    assert.equal((await checkAll(temp.path)).size, 4)
  })

  it('shows a standby what the leader writes, while it is written', async () => {
    await using temp = await makeTempFolder()
    const folder = 'gitrepository/team/app'
    const standby = await openStorage({ root: temp.path })
    const leader = startWriter(temp.path, [folder], 0, 80)
    let seen = 0
    while (leader.exitCode === null) {
      const log = await readFile(join(temp.path, folder, '.history.json'), 'utf8').catch(() => undefined)
      if (log !== undefined) parseHistory(folder, log)
      const opened = await standby.open(`${folder}/latest.tar.gz`)
      // Between its log and the file being read the file may have been superseded and removed: TTL 5 ms here.
      if (typeof opened !== 'object') {
        assert.notEqual(opened, 'damaged')
        await delay(1)
        continue
      }
      const hasher = await makeHasher('sha256')
      hasher.update(await opened.handle.readFile())
      await opened.handle.close()
      assert.equal(hasher.digest(), opened.artifact.digest)
      seen++
    }
    assert.ok(seen > 5, `${seen} reads`)
    const last = leader.lines.at(-1)
    const { path, digest, revision } = (await standby.find(folder, 'latest'))!
    assert.equal(`${path} ${digest} ${revision}`, last)
  })
})

describe('storage that cannot be written', function () {
  this.timeout(60_000)

  /** A limit of the kernel on the size of a file is the full disk that any user can have. */
  const script = `
    const { openStorage } = await import(${here} + '/storage.ts')
    const { entriesOf } = await import(${here} + '/../test-support.ts')
    const { randomBytes } = await import('node:crypto')
    const storage = await openStorage({ root: process.argv[1] })
    const folder = 'gitrepository/team/app'
    const first = await storage.store(folder, 'r1', entriesOf({ a: 'small' }), { fileName: 'one' })
    const failure = await storage.store(folder, 'r2', entriesOf({ a: randomBytes(400000) }), { fileName: 'two' }).catch((err) => err)
    const state = await storage.check(first.artifact)
    const latest = await storage.find(folder, 'latest')
    const after = await storage.store(folder, 'r3', entriesOf({ a: 'small again' }), { fileName: 'three' })
    console.log(JSON.stringify([failure.name, failure.reason, failure.message, state, latest.path, after.artifact.path]))`

  it('fails that store alone, keeps what it has, and recovers', async () => {
    await using temp = await makeTempFolder()
    const shell = 'ulimit -f 200; exec "$0" "$@"'
    const child = spawn('sh', ['-c', shell, process.execPath, '--input-type=module', '--eval', script, temp.path])
    let output = ''
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
    child.stderr.pipe(process.stderr)
    await once(child, 'close')
    assert.deepEqual(JSON.parse(output), [
      'ReconcileError',
      'ArchiveOperationFailed',
      'unable to archive artifact to storage: EFBIG: file too large',
      'intact',
      'gitrepository/team/app/one.tar.gz',
      'gitrepository/team/app/three.tar.gz',
    ])
    assert.deepEqual(await readdir(join(temp.path, '.openflux/tmp')), [])
  })
})
