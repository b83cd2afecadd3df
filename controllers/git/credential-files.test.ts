import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { removeLeftCredentialFiles, writeCredentialFiles } from './credential-files.ts'

describe('files with credentials', function () {
  this.timeout(20_000)
  let folder: string
  beforeEach(async () => (folder = join(await mkdtemp(join(tmpdir(), 'openflux-files-')), 'run')))
  afterEach(() => rm(dirname(folder), { recursive: true, force: true }))

  const modeOf = async (path: string) => ((await stat(path)).mode & 0o777).toString(8)

  it('can be read by the user alone, until they are released', async () => {
    const { paths, release } = await writeCredentialFiles(folder, { key: 'secret', ask: '#!/bin/sh\n' }, ['ask'])
    assert.equal(await readFile(paths.key, 'utf8'), 'secret')
    const modes = [paths.key, paths.ask, dirname(paths.key), folder].map(modeOf)
    assert.deepEqual(await Promise.all(modes), ['600', '700', '700', '700'])
    await release()
    await release()
    assert.deepEqual(await readdir(folder), [])
  })

  it('do not stay where they cannot be written', async () => {
    await assert.rejects(writeCredentialFiles(folder, { a: 'secret', 'no/such/folder': 'x' }), { code: 'ENOENT' })
    assert.deepEqual(await readdir(folder), [])
  })

  it('are removed where their process has ended, and those of a living one stay', async () => {
    const script = `
      import { writeCredentialFiles } from ${JSON.stringify(new URL('credential-files.ts', import.meta.url).href)}
      await writeCredentialFiles(process.argv[1], { key: 'secret' })
      setInterval(() => undefined, 1000)
      console.log('written')`
    const child = spawn(process.execPath, ['--input-type=module', '--eval', script, folder])
    await once(child.stdout, 'data')
    const { release } = await writeCredentialFiles(folder, { key: 'secret' })
    child.kill('SIGKILL')
    await once(child, 'close')
    await removeLeftCredentialFiles(folder)
    assert.equal((await readdir(folder)).length, 2)
    await removeLeftCredentialFiles(folder, 0)
    assert.equal((await readdir(folder)).length, 1)
    await release()
    assert.deepEqual(await readdir(folder), [])
  })
})
