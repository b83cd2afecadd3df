import assert from 'node:assert/strict'
import { makeRandom } from '../test-support.ts'
import { ArtifactMemory, type Loan } from './memory.ts'

const kiB = 1024

function load(memory: ArtifactMemory, digest: string, bytes = 10 * kiB): Promise<Loan | undefined> {
  return memory.load(digest, bytes, () => Promise.resolve(Buffer.alloc(bytes)))
}

async function keep(memory: ArtifactMemory, digest: string, bytes?: number): Promise<void> {
  const loan = await load(memory, digest, bytes)
  assert.ok(loan, digest)
  loan.release()
}

/** Whether it is there, without counting as a use of others. */
function has(memory: ArtifactMemory, digest: string): boolean {
  const loan = memory.lend(digest)
  loan?.release()
  return loan !== undefined
}

describe('artifact memory', () => {
  it('drops what was not used for the longest time when it is full', async () => {
    const memory = new ArtifactMemory(4 * 11 * kiB)
    for (const digest of ['a', 'b', 'c', 'd']) await keep(memory, digest)
    assert.ok(has(memory, 'a'))
    await keep(memory, 'e')
    assert.deepEqual(
      ['a', 'b', 'c', 'd', 'e'].filter((digest) => has(memory, digest)),
      ['a', 'c', 'd', 'e'],
    )
  })

  it('keeps what is lent, and refuses more when all of it is', async () => {
    const memory = new ArtifactMemory(4 * 11 * kiB)
    const loans: (Loan | undefined)[] = []
    for (const digest of ['a', 'b', 'c', 'd']) loans.push(await load(memory, digest))
    assert.equal(await load(memory, 'e'), undefined)
    assert.ok(['a', 'b', 'c', 'd'].every((digest) => has(memory, digest)))
    loans[2]!.release()
    await keep(memory, 'e')
    assert.deepEqual(
      ['a', 'b', 'c', 'd', 'e'].filter((digest) => has(memory, digest)),
      ['a', 'b', 'd', 'e'],
    )
  })

  it('reads once for all who want it at the same time', async () => {
    const memory = new ArtifactMemory(1024 * kiB)
    let reads = 0
    const read = () => Promise.resolve(Buffer.alloc(++reads))
    const loans = await Promise.all([memory.load('a', 1, read), memory.load('a', 1, read), memory.load('a', 1, read)])
    assert.ok(loans.every((loan) => loan?.bytes === loans[0]!.bytes))
    assert.equal(reads, 1)
  })

  it('keeps nothing that could not be read or is not of its size', async () => {
    const memory = new ArtifactMemory(1024 * kiB)
    assert.equal(await memory.load('a', 5, () => Promise.resolve(undefined)), undefined)
    assert.equal(await memory.load('a', 5, () => Promise.resolve(Buffer.alloc(6))), undefined)
    await assert.rejects(
      memory.load('a', 5, () => Promise.reject(new Error('EIO'))),
      /EIO/,
    )
    assert.equal(memory.usedBytes, 0)
    await keep(memory, 'a', 5)
  })

  it('keeps no file that would take more than a quarter of it, and nothing at all if it is 0', async () => {
    const memory = new ArtifactMemory(100 * kiB)
    assert.equal(await load(memory, 'a', 25 * kiB + 1), undefined)
    await keep(memory, 'b', 25 * kiB)
    assert.equal(await load(new ArtifactMemory(0), 'a', 1), undefined)
  })

  it('never takes more than its bound, whatever is wanted at once and however long it is read', async () => {
    const seed = Date.now() % 2 ** 31
    const random = makeRandom(seed)
    const bound = 400 * kiB
    const memory = new ArtifactMemory(bound)
    const lent = new Map<Loan, number>()
    const running: Promise<void>[] = []
    for (let step = 0; step < 5000; step++) {
      const digest = String(random(60))
      const bytes = Number(digest) * 2 * kiB
      if (random(3) > 0) {
        running.push(load(memory, digest, bytes).then((loan) => void (loan && lent.set(loan, loan.bytes.length))))
      } else {
        const [loan] = [...lent.keys()].slice(random(lent.size || 1))
        if (loan && lent.delete(loan)) loan.release()
      }
      if (random(10) === 0) await Promise.all(running.splice(0))
      const distinct = new Set([...lent.keys()].map((loan) => loan.bytes))
      const lentBytes = [...distinct].reduce((sum, each) => sum + each.length, 0)
      assert.ok(memory.usedBytes <= bound && lentBytes <= memory.usedBytes, `seed ${seed}, step ${step}`)
    }
    await Promise.all(running)
  })
})
