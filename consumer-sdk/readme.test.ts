import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readmeSample } from './readme-sample.ts'

describe('the README', () => {
  it('has a sample consumer of less than 60 lines, the very one that runs here', async () => {
    const sample = await readmeSample('../index.ts')
    assert.equal(sample, await readFile(join(import.meta.dirname, 'sample/extraction.ts'), 'utf8'))
    assert.ok(sample.trimEnd().split('\n').length < 60)
  })

  it('lists every reason that the SDK gives', async () => {
    const readme = await readFile(join(import.meta.dirname, 'README.md'), 'utf8')
    for (const file of ['source-ref', 'artifact-url', 'resolve', 'fetch', 'extract', 'artifact-handle', 'reconciler']) {
      const source = await readFile(join(import.meta.dirname, `${file}.ts`), 'utf8')
      for (const [, reason] of source.matchAll(/Error\(\s*'([A-Z]\w+)'/g))
        assert.ok(readme.includes(`\`${reason}\``), `${reason} of ${file}.ts is missing`)
    }
  })
})
