import assert from 'node:assert/strict'
import { lutimes, mkdir, mkdtemp, readdir, readFile, rm, symlink, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { openStage } from './stage.ts'

const dayMs = 24 * 60 * 60_000

describe('the stage beside a target', () => {
  let parent: string

  beforeEach(async () => {
    parent = await mkdtemp(join(tmpdir(), 'stage-test-'))
  })
  afterEach(() => rm(parent, { recursive: true }))

  async function put(target: string, content: string): Promise<void> {
    const stage = await openStage(target, true)
    try {
      await writeFile(join(stage.path, 'file'), content)
      await stage.commit()
    } finally {
      await stage.discard()
    }
  }

  for (const length of [1, 244, 248, 253, 255]) {
    it(`serves a target whose name has ${length} characters, absent and full`, async () => {
      const target = join(parent, 'n'.repeat(length))
      for (const content of ['first', 'second']) {
        await put(target, content)
        assert.equal(await readFile(join(target, 'file'), 'utf8'), content)
        assert.deepEqual(await readdir(parent), [basename(target)])
      }
    })
  }

  it('removes what a killed process left a day ago, and nothing else', async () => {
    const longAgo = new Date(Date.now() - dayMs - 60_000)
    const lately = new Date(Date.now() - dayMs + 60_000)
    const folder = async (name: string, age: Date) => {
      await mkdir(join(parent, name))
      await writeFile(join(parent, name, 'file'), name)
      await utimes(join(parent, name), age, age)
    }
    await folder('.openflux-killed', longAgo)
    await folder('.openflux-recent', lately)
    await folder('.openflux-of-another', longAgo)
    await folder('other-target', longAgo)
    await symlink(join(parent, 'other-target'), join(parent, '.openflux-linked'))
    await lutimes(join(parent, '.openflux-linked'), longAgo, longAgo)
    await put(join(parent, 'target'), 'content')
    const left = ['.openflux-linked', '.openflux-of-another', '.openflux-recent', 'other-target', 'target']
    assert.deepEqual((await readdir(parent)).toSorted(), left)
    assert.deepEqual(await readdir(join(parent, 'other-target')), ['file'])
  })

  it('keeps an old target that another extraction is just replacing', async () => {
    const target = join(parent, 'target')
    await put(target, 'first')
    await utimes(target, 0, 0)
    const stage = await openStage(target, true)
    await stage.commit()
    await put(join(parent, 'neighbour'), 'content')
    const [name = ''] = (await readdir(parent)).filter((entry) => entry.startsWith('.openflux-'))
    assert.equal(await readFile(join(parent, name, 'old', 'file'), 'utf8'), 'first')
    await stage.discard()
    assert.deepEqual((await readdir(parent)).toSorted(), ['neighbour', 'target'])
  })
})
