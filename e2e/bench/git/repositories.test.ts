import assert from 'node:assert/strict'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { makeRepository } from '../../git-server.ts'
import { makeRandom, manifests } from './documents.ts'
import { copyRepository, generatedRepository, newestTag } from './repositories.ts'

const shape = { seed: 7, files: 20, bytes: 100_000, refs: 60 }

describe('a generated repository', function () {
  this.timeout(30_000)
  let folder: string
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'bench-repositories-'))
  })
  after(() => rm(folder, { recursive: true, force: true }))

  it('has the commits, files and refs that its shape says, whoever makes it', async () => {
    const refs: string[] = []
    for (const cache of ['first', 'second']) {
      const made = await makeRepository(await generatedRepository(shape, join(folder, cache)))
      refs.push(await made.git(['for-each-ref', '--format=%(objectname) %(refname)']))
      assert.equal((await made.git(['ls-tree', '-r', '--name-only', 'main'])).trim().split('\n').length, shape.files)
    }
    assert.equal(refs[0], refs[1])
    assert.equal(refs[0]!.trim().split('\n').length, shape.refs)
    assert.match(refs[0]!, new RegExp(`refs/tags/${newestTag}\n`))
  })

  it('is made once, and copies can be changed', async () => {
    const made = await generatedRepository(shape, join(folder, 'third'))
    const { ino } = await stat(made)
    assert.equal(await generatedRepository(shape, join(folder, 'third')), made)
    assert.equal((await stat(made)).ino, ino)
    const copy = await copyRepository(made, join(folder, 'copy.git'))
    const before = await copy.git(['rev-parse', 'main'])
    assert.notEqual(await copy.commit({ 'new.yaml': 'new' }, 'new'), before.trim())
    assert.equal(await (await makeRepository(made)).git(['rev-parse', 'main']), before)
  })

  it('holds text that gzip shrinks about as much as the manifests of people', async () => {
    const text = Buffer.from(manifests(makeRandom(1), 1_000_000))
    const packed = await promisify(gzip)(text)
    const ratio = text.length / packed.length
    assert.ok(ratio > 5 && ratio < 10, `ratio ${ratio}`)
  })
})
