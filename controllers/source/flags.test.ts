import assert from 'node:assert/strict'
import { advertisedUrl, bytesArg } from './flags.ts'

describe('storage flags', () => {
  const sizes: [string, number][] = [
    ['1000', 1000],
    ['1k', 1000],
    ['1Ki', 1024],
    ['512Mi', 512 * 2 ** 20],
    ['4Gi', 2 ** 32],
    ['2G', 2e9],
  ]
  for (const [text, bytes] of sizes) it(`read ${text} as ${bytes} bytes`, () => assert.equal(bytesArg(text), bytes))
  for (const text of ['', '1.5Gi', '-1', '1KB', '1 Gi', '9999999999999', '0x10']) {
    it(`refuse the size ${JSON.stringify(text)}`, () => assert.throws(() => bytesArg(text), /not a size/))
  }

  const addresses: [string, string, number, string][] = [
    [':9090', '', 9090, 'http://localhost:9090'],
    ['127.0.0.1:0', '', 4711, 'http://127.0.0.1:4711'],
    ['[::1]:9090', '', 9090, 'http://[::1]:9090'],
    [
      ':9090',
      'git-controller.openflux-system.svc.cluster.local.',
      9090,
      'http://git-controller.openflux-system.svc.cluster.local.',
    ],
    [':9090', 'https://artifacts.example/', 9090, 'https://artifacts.example'],
  ]
  for (const [storageAddr, storageAdvAddr, port, url] of addresses) {
    it(`advertise ${url} for --storage-addr=${storageAddr} --storage-adv-addr=${storageAdvAddr}`, () =>
      assert.equal(advertisedUrl({ storageAddr, storageAdvAddr }, port), url))
  }

  it('advertise the host name when all addresses are listened on, as Flux does', () => {
    const saved = process.env.HOSTNAME
    process.env.HOSTNAME = 'pod-1'
    assert.equal(advertisedUrl({ storageAddr: '0.0.0.0:9090', storageAdvAddr: '' }, 9090), 'http://pod-1:9090')
    if (saved === undefined) delete process.env.HOSTNAME
    else process.env.HOSTNAME = saved
  })
})
