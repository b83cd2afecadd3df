import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { makeRepository, type Repository } from '../../git-server.ts'
import { assertSame, contentOfCommit, contentOfFile } from './content.ts'

describe('the comparison of contents', function () {
  this.timeout(30_000)
  let folder: string
  let repository: Repository
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'bench-content-'))
    repository = await makeRepository(join(folder, 'app.git'))
    await repository.commit({ 'a/one.yaml': 'one', 'a/two.yaml': 'x'.repeat(200_000) }, 'first')
  })
  after(() => rm(folder, { recursive: true, force: true }))

  async function archiveOf(ref: string): Promise<string> {
    const file = join(folder, `${ref}.tar.gz`)
    await writeFile(file, gzipSync(await repository.git(['archive', '--format=tar', ref])))
    return file
  }

  it('knows each file by its path and its SHA-256', async () => {
    const content = await contentOfCommit(repository.dir, 'main')
    assert.deepEqual([...content.keys()], ['a/one.yaml', 'a/two.yaml'])
    assert.equal(content.get('a/one.yaml'), createHash('sha256').update('one').digest('hex'))
    assertSame(await contentOfFile(await archiveOf('main')), content, 'archive')
  })

  it('names what is different, missing or too much', async () => {
    const expected = await contentOfCommit(repository.dir, 'main')
    const changes = [
      { change: { 'a/one.yaml': 'One' }, message: /other: a\/one\.yaml is different/ },
      { change: { 'a/one.yaml': null }, message: /other: a\/one\.yaml is missing/ },
      { change: { 'b.yaml': '' }, message: /other: b\.yaml should not be there/ },
    ]
    for (const [n, { change, message }] of changes.entries()) {
      const branch = `change-${n}`
      await repository.branch(branch, 'refs/heads/main')
      await repository.commit(change, 'change', { branch })
      const actual = await contentOfFile(await archiveOf(branch))
      assert.throws(() => assertSame(actual, expected, 'other'), message)
    }
  })

  it('refuses an archive that is cut short', async () => {
    const file = join(folder, 'cut.tar.gz')
    const whole = gzipSync(await repository.git(['archive', '--format=tar', 'main']))
    await writeFile(file, whole.subarray(0, whole.length - 100))
    await assert.rejects(contentOfFile(file))
  })
})
