import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { StoredArtifact } from '../controllers/artifact/stored.ts'
import type { ArtifactSpec } from '../controllers/artifact/types.ts'
import { GitRepositoryKind, type GitRepositoryArtifact } from '../controllers/git/types.ts'
import type { Kind } from '../controllers/runtime/kind.ts'
import type { SourceObject } from '../controllers/source/source.ts'
import type { Crd, Schema } from './generate/crd.ts'
import { referenceOf } from './generate/reference.ts'
import { typesOf } from './generate/types.ts'

const root = join(import.meta.dirname, '..')

describe('npm run generate', () => {
  it('would write exactly what is checked in', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'generate-'))
    try {
      await promisify(execFile)(process.execPath, [join(root, 'crds/generate.ts'), folder])
      const entries = await readdir(folder, { recursive: true, withFileTypes: true })
      const files = entries.filter((e) => e.isFile()).map((e) => join(e.parentPath, e.name).slice(folder.length + 1))
      assert.ok(files.length >= 5, `only ${files.join(', ')}`)
      for (const file of files) {
        const [fresh, kept] = await Promise.all([folder, root].map((base) => readFile(join(base, file), 'utf8')))
        assert.equal(kept, fresh, `${file} is stale`)
      }
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it('covers every CRD of the folder', async () => {
    const crds = (await readdir(join(root, 'crds'))).filter((name) => name.endsWith('.yaml'))
    const reference = await readFile(join(root, 'crds/README.md'), 'utf8')
    for (const name of crds)
      assert.ok(reference.includes(`, \`${name.replace('.yaml', '')}\``), `${name} is not in the reference`)
  })
})

describe('generated types', () => {
  it('fit what the source reconciler and the storage use', () => {
    // The compiler checks these lines; at run time there is nothing left of them.
    const kind: Kind<SourceObject> = GitRepositoryKind
    const stored: StoredArtifact = { path: 'a/b', revision: 'c', digest: 'd:e', size: 1, lastUpdateTime: '' }
    const reported: GitRepositoryArtifact = { ...stored, url: 'http://f' }
    const published: ArtifactSpec = reported
    assert.equal(published.url, 'http://f')
    assert.equal(kind.plural, 'gitrepositories')
  })

  it('are one interface for equal objects, and the runtime’s own for conditions', async () => {
    const place: Schema = { type: 'object', properties: { path: { type: 'string' }, size: { type: 'integer' } } }
    const status: Schema = {
      type: 'object',
      properties: {
        place: { ...place, description: 'One.' },
        others: { type: 'array', items: { ...place, description: 'Many.' } },
        conditions: { type: 'array', items: { type: 'object', properties: { type: { type: 'string' } } } },
      },
    }
    const source = await typesOf(crdWith({ type: 'object', properties: { status } }), 'crds/x.yaml', './kind.ts', {})
    assert.match(source, /place\?: ThingPlace;/)
    assert.match(source, /others\?: ThingPlace\[\];/)
    assert.match(source, /conditions\?: Condition\[\];/)
    assert.equal(source.match(/interface ThingPlace/g)?.length, 1)
  })
})

describe('API reference', () => {
  it('names nested fields by their path, marks what is required, and escapes bars within cells', () => {
    const spec: Schema = {
      type: 'object',
      required: ['parts'],
      properties: {
        parts: { type: 'array', items: { type: 'object', properties: { mode: { type: 'string', pattern: 'a|b' } } } },
      },
    }
    const page = referenceOf([crdWith({ type: 'object', properties: { spec } })])
    assert.ok(page.includes('| `parts` * | list of object |'), page)
    assert.ok(page.includes('| `parts[].mode` | string | Must match `a\\|b`. |'), page)
  })
})

function crdWith(schema: Schema): Crd {
  return {
    group: 'g',
    version: 'v1',
    kind: 'Thing',
    plural: 'things',
    shortNames: [],
    categories: [],
    columns: [],
    schema,
  }
}
