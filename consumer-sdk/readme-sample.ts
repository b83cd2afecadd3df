import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

/** The README's sample with another address for the SDK, which users have from the package. For tests. */
export async function readmeSample(from: string): Promise<string> {
  const readme = await readFile(join(import.meta.dirname, 'README.md'), 'utf8')
  const block = /^```ts\n([^]*?)^```$/m.exec(readme)?.[1] ?? ''
  assert.ok(block.includes(`'@openflux/kit'`))
  return block.replace(`'@openflux/kit'`, `'${from}'`)
}
