import assert from 'node:assert/strict'
import { appendFile, link, lstat, rm, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { makeHasher } from '../digest.ts'
import { makeTempFolder } from '../test-support.ts'
import { hashFile, Verifier } from './verifier.ts'

interface Fixture {
  file: string
  digest: string
  verifier: Verifier
  /** How often a file has been hashed. */
  hashes(): number
  [Symbol.asyncDispose](): Promise<void>
}

/** A file, last written an hour ago, and a verifier that counts. */
async function makeFixture(content = 'content'): Promise<Fixture> {
  const temp = await makeTempFolder()
  const file = join(temp.path, 'file')
  await writeFile(file, content)
  const hourAgo = new Date(Date.now() - 3_600_000)
  await utimes(file, hourAgo, hourAgo)
  const hasher = await makeHasher('sha256')
  hasher.update(Buffer.from(content))
  let count = 0
  const verifier = new Verifier((...args) => (count++, hashFile(...args)))
  return {
    file,
    digest: hasher.digest(),
    verifier,
    hashes: () => count,
    [Symbol.asyncDispose]: () => temp[Symbol.asyncDispose](),
  }
}

const wrong = `sha256:${'0'.repeat(64)}`

describe('verifier', function () {
  this.timeout(60_000)

  it('hashes a file once, for all who ask at once and later', async () => {
    await using f = await makeFixture('x'.repeat(5_000_000))
    const states = await Promise.all(Array.from({ length: 50 }, () => f.verifier.check(f.file, f.digest)))
    assert.deepEqual(new Set(states), new Set(['intact']))
    for (let i = 0; i < 10; i++) await f.verifier.check(f.file, f.digest)
    const opened = await f.verifier.open(f.file, f.digest)
    assert.ok(typeof opened === 'object')
    await opened.handle.close()
    assert.equal(f.hashes(), 1)
  })

  it('hashes a damaged file once, too', async () => {
    await using f = await makeFixture()
    for (let i = 0; i < 10; i++) assert.equal(await f.verifier.check(f.file, wrong), 'damaged')
    for (let i = 0; i < 10; i++) assert.equal(await f.verifier.open(f.file, wrong), 'damaged')
    assert.equal(f.hashes(), 1)
  })

  it('knows a file by its inode, whatever its names', async () => {
    await using f = await makeFixture()
    await link(f.file, `${f.file}.2`)
    await f.verifier.check(f.file, f.digest)
    assert.equal(await f.verifier.check(`${f.file}.2`, f.digest), 'intact')
    assert.equal(f.hashes(), 1)
  })

  it('hashes again whatever may have changed: size, time of the last write, any other time', async () => {
    await using f = await makeFixture()
    await f.verifier.check(f.file, f.digest)
    await utimes(f.file, 1, 1)
    assert.equal(await f.verifier.check(f.file, f.digest), 'intact')
    assert.equal(f.hashes(), 2)
    await appendFile(f.file, 'X')
    assert.equal(await f.verifier.check(f.file, f.digest), 'damaged')
    assert.equal(f.hashes(), 3)
    await rm(f.file)
    assert.equal(await f.verifier.check(f.file, f.digest), 'missing')
  })

  it('is not deceived by a time of the last write that is set back', async () => {
    await using f = await makeFixture()
    await f.verifier.check(f.file, f.digest)
    const { atime, mtime } = await lstat(f.file)
    await writeFile(f.file, 'CONTENT')
    await utimes(f.file, atime, mtime)
    assert.equal(await f.verifier.check(f.file, f.digest), 'damaged')
  })

  it('hashes again when the last hash is older than it may be', async () => {
    await using f = await makeFixture()
    await f.verifier.check(f.file, f.digest)
    await delay(20)
    await f.verifier.check(f.file, f.digest, 10)
    assert.equal(f.hashes(), 2)
    await f.verifier.check(f.file, f.digest, Infinity)
    assert.equal(f.hashes(), 2)
  })

  it('hashes per algorithm', async () => {
    await using f = await makeFixture()
    await f.verifier.check(f.file, f.digest)
    assert.equal(await f.verifier.check(f.file, `sha512:${'0'.repeat(128)}`), 'damaged')
    assert.equal(await f.verifier.check(f.file, f.digest), 'intact')
    assert.equal(f.hashes(), 2)
  })

  it('trusts what was hashed while it was written, and reads it once more when the times have become unambiguous', async () => {
    await using f = await makeFixture()
    await writeFile(f.file, 'content')
    f.verifier.trust(await lstat(f.file, { bigint: true }), f.digest)
    assert.equal(await f.verifier.check(f.file, f.digest), 'intact')
    assert.equal(f.hashes(), 0)
    await delay(2100)
    assert.equal(await f.verifier.check(f.file, f.digest), 'intact')
    assert.equal(await f.verifier.check(f.file, f.digest), 'intact')
    assert.equal(f.hashes(), 1)
  })

  it('takes a record over to the times that a new name has brought, unless the content changed, too', async () => {
    await using f = await makeFixture()
    await f.verifier.check(f.file, f.digest)
    const second = `${f.file}.2`
    await f.verifier.renaming(f.file, second, f.digest, () => link(f.file, second))
    assert.equal(await f.verifier.check(f.file, f.digest), 'intact')
    assert.equal(f.hashes(), 1)
    await f.verifier.renaming(f.file, f.file, f.digest, () => appendFile(second, 'X'))
    assert.equal(await f.verifier.check(f.file, f.digest), 'damaged')
    assert.equal(f.hashes(), 2)
  })

  it('does not hash a file again that gets names while many ask for it', async () => {
    await using f = await makeFixture()
    await f.verifier.check(f.file, f.digest)
    let done = false
    const asking = Array.from({ length: 20 }, async () => {
      while (!done) assert.equal(await f.verifier.check(f.file, f.digest), 'intact')
    })
    for (let i = 0; i < 200; i++) {
      const name = `${f.file}.${i}`
      await f.verifier.renaming(f.file, name, f.digest, () => link(f.file, name))
    }
    done = true
    await Promise.all(asking)
    assert.equal(f.hashes(), 1)
  })

  it('lets those wait who ask within a renaming', async () => {
    await using f = await makeFixture()
    await f.verifier.check(f.file, f.digest)
    const linked = Promise.withResolvers<void>()
    const goOn = Promise.withResolvers<void>()
    const second = `${f.file}.2`
    const renaming = f.verifier.renaming(f.file, second, f.digest, async () => {
      await link(f.file, second)
      linked.resolve()
      await goOn.promise
    })
    await linked.promise
    const state = f.verifier.check(f.file, f.digest)
    for (let look = 0; look < 20; look++) await lstat(f.file) // longer than the check looks at it
    goOn.resolve()
    await renaming
    assert.equal(await state, 'intact')
    assert.equal(f.hashes(), 1)
  })

  it('answers those who have waited for a renaming that failed', async () => {
    await using f = await makeFixture()
    const started = Promise.withResolvers<void>()
    const { promise, reject } = Promise.withResolvers<void>()
    const renaming = f.verifier.renaming(f.file, f.file, f.digest, () => (started.resolve(), promise))
    await started.promise
    const state = f.verifier.check(f.file, f.digest)
    reject(new Error('no space left'))
    await assert.rejects(renaming, { message: 'no space left' })
    assert.equal(await state, 'intact')
  })

  it('calls a file damaged that is written to whenever it is read', async () => {
    await using f = await makeFixture()
    const restless = new Verifier(async (...args) => {
      const digest = await hashFile(...args)
      await appendFile(f.file, 'X')
      return digest
    })
    assert.equal(await restless.check(f.file, f.digest), 'damaged')
  })
})
