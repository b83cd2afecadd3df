import { copyFile, mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { resolveConfig, type Options } from 'prettier'
import { readCrd } from './generate/crd.ts'
import { referenceOf } from './generate/reference.ts'
import { typesOf } from './generate/types.ts'

/** The module of each kind's types, and the kustomize base that carries a copy of its CRD. */
const kinds = [
  { plural: 'artifacts', types: 'controllers/artifact/types.ts', base: 'deploy/common' },
  { plural: 'gitrepositories', types: 'controllers/git/types.ts', base: 'deploy/git/controller' },
]

/** Writes all that follows from the CRDs below the folder `to`: types, the reference, and copies, as kustomize reads nothing outside a base. */
async function generate(root: string, to: string): Promise<void> {
  const style: Options = (await resolveConfig(join(root, 'package.json'))) ?? {}
  const crds = []
  for (const { plural, types, base } of kinds) {
    const source = `crds/${plural}.yaml`
    const crd = await readCrd(join(root, source))
    crds.push(crd)
    await write(join(to, types), await typesOf(crd, source, '../runtime/kind.ts', style))
    await mkdir(join(to, base), { recursive: true })
    await copyFile(join(root, source), join(to, base, `${plural}.yaml`))
  }
  await write(join(to, 'crds/README.md'), referenceOf(crds))
}

async function write(file: string, text: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true })
  await writeFile(file, text)
}

const root = join(import.meta.dirname, '..')
await generate(root, process.argv[2] ?? root)
