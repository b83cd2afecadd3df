import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const log = JSON.stringify(join(import.meta.dirname, 'log.ts'))

/** What a process writes to standard error that runs this code with a logger. */
async function stderrOf(code: string): Promise<string[]> {
  const program = `import { makeLogger } from ${log}\n${code}`
  const { stderr, stdout } = await run(process.execPath, ['--input-type=module', '--eval', program])
  assert.equal(stdout, '')
  return stderr.trim().split('\n')
}

describe('log', () => {
  it('is one JSON object a line, with the keys that flux logs reads', async () => {
    const [line] = await stderrOf(
      `makeLogger('info').child({ controller: 'gitrepository', namespace: 'ns' }).info({ revision: 'r' }, 'stored')`,
    )
    const { ts, ...rest } = JSON.parse(line!) as Record<string, string>
    assert.deepEqual(rest, {
      level: 'info',
      controller: 'gitrepository',
      namespace: 'ns',
      revision: 'r',
      msg: 'stored',
    })
    assert.match(ts!, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  })

  it('tells errors with their stack, and nothing below its level', async () => {
    const lines = await stderrOf(
      `const log = makeLogger('error'); log.info('no'); log.error({ error: new TypeError('bad') }, 'failed')`,
    )
    assert.equal(lines.length, 1)
    const { error, msg } = JSON.parse(lines[0]!) as {
      error: { type: string; message: string; stack: string }
      msg: string
    }
    assert.deepEqual([error.type, error.message, msg], ['TypeError', 'bad', 'failed'])
    assert.match(error.stack, /TypeError: bad/)
  })

  it('is readable on a console', async () => {
    const [line] = await stderrOf(`makeLogger('info', 'console').info({ revision: 'r' }, 'stored')`)
    assert.match(line!, /^\S+Z\tINFO\tstored\t\{"revision":"r"\}$/)
  })
})
