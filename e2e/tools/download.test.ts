import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checksumOf, downloadFile, downloadText } from './download.ts'
import { listen } from './port.ts'

const content = Buffer.alloc(300_000, 'content')
const digest = createHash('sha256').update(content).digest('hex')

describe('a download', function () {
  this.timeout(30_000)
  let server: Server
  let folder: string
  let site: string

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'download-test-'))
    server = createServer((request, response) => {
      if (request.url === '/moved') response.writeHead(302, { location: '/file' }).end()
      else if (request.url === '/truncated') {
        response.writeHead(200, { 'content-length': content.length })
        response.write(content.subarray(0, 1000), () => response.destroy())
      } else if (request.url === '/file') response.end(content)
      else response.writeHead(404).end('nothing here')
    })
    site = `http://127.0.0.1:${await listen(server)}`
  })
  after(async () => {
    server.close()
    await rm(folder, { recursive: true })
  })

  it('arrives as an executable file, also from where it has moved to', async () => {
    for (const path of ['file', 'moved']) {
      const file = join(folder, path)
      await downloadFile(`${site}/${path}`, file, digest)
      assert.deepEqual(await readFile(file), content)
      assert.ok((await stat(file)).mode & 0o100)
    }
  })

  it('is refused with a wrong digest, when cut off, too long, or missing', async () => {
    const file = join(folder, 'refused')
    await assert.rejects(downloadFile(`${site}/file`, file, 'f'.repeat(64)), /has SHA-256 .* expected ffff/)
    await assert.rejects(downloadFile(`${site}/truncated`, file, digest))
    await assert.rejects(downloadFile(`${site}/file`, file, digest, 1000), /longer than 1000 bytes/)
    await assert.rejects(downloadText(`${site}/file`, 1000), /longer than 1000 bytes/)
    await assert.rejects(downloadText(`${site}/missing`), /answered 404/)
  })
})

describe('published checksums', () => {
  const [a, b] = ['a'.repeat(64), 'b'.repeat(64)]

  it('are found by the name of the file, or stand alone', () => {
    assert.equal(checksumOf('two.tar.gz', `${a}  one.tar.gz\n${b} *two.tar.gz\n`), b)
    assert.equal(checksumOf('kubectl', `${a}\n`), a)
  })

  it('are refused when the file is not among them or the digest is none', () => {
    assert.throws(() => checksumOf('three', `${a}  one\n${b}  two\n`), /no SHA-256 of three/)
    assert.throws(() => checksumOf('one', 'not-a-digest  one\n'), /no SHA-256 of one/)
    assert.throws(() => checksumOf('one', ''), /no SHA-256 of one/)
  })
})
