import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { makeRandom } from '../../artifact/test-support.ts'
import { hostKeyAlgorithms } from './host-keys.ts'
import { knownKeysOf, matchesPattern } from './known-hosts.ts'

/** A key whose blob is no more than its type and some bytes. */
function keyOf(type: string, tail = 'key'): string {
  const length = Buffer.alloc(4)
  length.writeUInt32BE(type.length)
  return `${type} ${Buffer.concat([length, Buffer.from(type), Buffer.from(tail)]).toString('base64')}`
}

function hashed(host: string): string {
  const salt = Buffer.from('twenty bytes of salt')
  const hash = createHmac('sha1', salt).update(host).digest('base64')
  return `|1|${salt.toString('base64')}|${hash}`
}

const ed25519 = keyOf('ssh-ed25519')
const realKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl'

const matching: [string, string, number, boolean][] = [
  ['example.com', 'example.com', 22, true],
  ['Example.COM', 'example.com', 22, true],
  ['example.com', 'other.com', 22, false],
  ['a,example.com,b', 'example.com', 22, true],
  ['*.example.com', 'a.b.example.com', 22, true],
  ['*.example.com', 'example.com', 22, false],
  ['10.0.0.?', '10.0.0.7', 22, true],
  ['10.0.0.?', '10.0.0.77', 22, false],
  ['*,!bad.example.com', 'bad.example.com', 22, false],
  ['!bad.example.com,*', 'good.example.com', 22, true],
  ['!bad.example.com', 'good.example.com', 22, false],
  ['[example.com]:2222', 'example.com', 2222, true],
  ['[example.com]:2222', 'example.com', 2223, false],
  ['[example.com]:2222', 'example.com', 22, false],
  ['[::1]:2222', '::1', 2222, true],
  ['::1', '::1', 22, true],
  [hashed('example.com'), 'example.com', 22, true],
  [hashed('[example.com]:2222'), 'example.com', 2222, true],
  [hashed('example.com'), 'example.org', 22, false],
]

describe('known_hosts', function () {
  this.timeout(60_000)
  for (const [hosts, host, port, found] of matching) {
    it(`${found ? 'knows' : 'does not know'} ${host} port ${port} by ${hosts.slice(0, 24)}`, async () => {
      assert.equal((await knownKeysOf(`${hosts} ${ed25519}\n`, host, port)).length, found ? 1 : 0)
    })
  }

  it('finds what ssh-keygen finds', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'known-hosts-'))
    try {
      await Promise.all(
        matching.map(async ([hosts, host, port, found], at) => {
          const file = join(folder, String(at))
          await writeFile(file, `${hosts} ${realKey}\n`)
          const args = ['-F', port === 22 ? host : `[${host}]:${port}`, '-f', file]
          const there = await promisify(execFile)('ssh-keygen', args).then(
            () => true,
            () => false,
          )
          assert.equal(there, found, `${hosts} ${host}`)
        }),
      )
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it('counts a host without port for every port, as ssh does', async () => {
    assert.equal((await knownKeysOf(`example.com ${ed25519}`, 'example.com', 2222)).length, 1)
  })

  it('may hold comments, empty lines, markers, carriage returns and types of keys that nobody knows', async () => {
    const text = [
      '# a comment',
      '',
      `\t example.com ${ed25519} me@here and more\r`,
      `@cert-authority *.com ${keyOf('ssh-rsa')}`,
      `@revoked * ${keyOf('ssh-ed25519', 'stolen')}`,
      `example.com ${keyOf('ssh-next@example.com')}`,
    ]
    const keys = await knownKeysOf(text.join('\n'), 'example.com', 22)
    assert.deepEqual(
      keys.map(({ marker, type }) => [marker, type]),
      [
        [undefined, 'ssh-ed25519'],
        ['cert-authority', 'ssh-rsa'],
        ['revoked', 'ssh-ed25519'],
        [undefined, 'ssh-next@example.com'],
      ],
    )
  })

  for (const [text, why] of [
    ['', /known_hosts is empty/],
    [' \n\n', /known_hosts is empty/],
    ['example.com', /line 1 of known_hosts: there is no type of key/],
    [`# x\nexample.com ssh-ed25519`, /line 2 of known_hosts: the key is not base64/],
    [`example.com ssh-ed25519 !!!!`, /line 1 of known_hosts: the key is not base64/],
    [`example.com ssh-ed25519 ${keyOf('ssh-rsa').split(' ')[1]}`, /line 1 of known_hosts: the key is not of type/],
    ['example.com ssh-ed25519 AAAA', /the key is not of type/],
    [`@trusted example.com ${ed25519}`, /its marker is neither/],
    [`|1|xx ${ed25519}`, /the hashed host is not/],
    [`|2|c2FsdA==|${'A'.repeat(27)}= ${ed25519}`, /the hashed host is not/],
    ['<html>no such page</html>', /line 1 of known_hosts: there is no type of key|not base64/],
    ['x'.repeat(1024 * 1024 + 1), /longer than 1048576 bytes/],
    ['#\n'.repeat(10_000), /more than 10000 lines/],
  ] as const) {
    it(`is refused: ${String(why)}`, async () => {
      await assert.rejects(knownKeysOf(text, 'example.com', 22), why)
    })
  }

  it('is either read or refused, whatever is in it', async () => {
    const seed = Date.now() % 2 ** 32
    console.log(`        seed ${seed}`)
    const random = makeRandom(seed)
    for (let i = 0; i < 20_000; i++) {
      const text = hostile(random)
      const host = ['example.com', 'a', '::1', '*', '!'][random(5)]!
      await knownKeysOf(text, host, random(2) ? 22 : 2222).catch((err: unknown) => {
        assert.ok(
          err instanceof Error && /known_hosts/.test(err.message),
          `input ${i}: ${JSON.stringify(text)}: ${String(err)}`,
        )
      })
    }
  })

  it('matches patterns as the plain definition does', () => {
    const seed = Date.now() % 2 ** 32
    console.log(`        seed ${seed}`)
    const random = makeRandom(seed)
    const word = (letters: string) => Array.from({ length: random(9) }, () => letters[random(letters.length)]).join('')
    for (let i = 0; i < 20_000; i++) {
      const [pattern, name] = [word('ab*?'), word('ab')]
      assert.equal(matchesPattern(pattern, name), plainly(pattern, name), `${pattern} ${name}`)
    }
  })

  it('lets others work while it compares with the worst of patterns', async () => {
    const pattern = `*${'a'.repeat(120)}b`
    const text = `${Array.from({ length: 3000 }, () => pattern).join(',')} ${ed25519}`
    let turns = 0
    const count = () => {
      turns++
      immediate = setImmediate(count)
    }
    let immediate = setImmediate(count)
    assert.deepEqual(await knownKeysOf(text, 'a'.repeat(253), 22), [])
    clearImmediate(immediate)
    assert.ok(turns > 0)
  })
})

function plainly(pattern: string, name: string): boolean {
  if (pattern === '') return name === ''
  if (pattern[0] === '*') return plainly(pattern.slice(1), name) || (name !== '' && plainly(pattern, name.slice(1)))
  return name !== '' && (pattern[0] === '?' || pattern[0] === name[0]) && plainly(pattern.slice(1), name.slice(1))
}

/** Lines that are nearly right, with a few characters changed, cut or added. */
function hostile(random: (below: number) => number): string {
  const hosts = ['example.com', '*', '!a,*', '[example.com]:2222', hashed('example.com'), '|1|', '@revoked *', '@', '#']
  const lines = Array.from({ length: 1 + random(4) }, () => `${hosts[random(hosts.length)]} ${ed25519}`)
  const characters = lines.join(['\n', '\r\n', ' '][random(3)]).split('')
  for (let changes = random(4); changes > 0; changes--) {
    const at = random(characters.length)
    const any = ['\0', '\n', ' ', '*'.repeat(50), '?', '|', '@', '\ud800', '=', String.fromCharCode(random(65_536))]
    characters.splice(at, random(3), any[random(any.length)]!)
  }
  return characters.slice(0, random(4) === 0 ? random(characters.length) : undefined).join('')
}

describe('the keys that a host is asked for', () => {
  const at = { host: 'example.com', port: 22 }
  const lines = (...types: string[]) => types.map((type) => `example.com ${keyOf(type)}`).join('\n')

  it('are those that are known, in the order of preference', async () => {
    assert.deepEqual(await hostKeyAlgorithms(lines('ssh-rsa'), at), ['rsa-sha2-512', 'rsa-sha2-256'])
    assert.deepEqual(await hostKeyAlgorithms(lines('ssh-rsa', 'ecdsa-sha2-nistp256', 'ssh-ed25519'), at), [
      'ssh-ed25519',
      'ecdsa-sha2-nistp256',
      'rsa-sha2-512',
      'rsa-sha2-256',
    ])
  })

  it('are certificates too where an authority is known', async () => {
    const algorithms = await hostKeyAlgorithms(`@cert-authority * ${keyOf('ssh-rsa')}`, at)
    assert.ok(algorithms.length > 0)
    for (const algorithm of algorithms) assert.match(algorithm, /-cert-v01@openssh\.com$/)
  })

  it('are those of the allowed ones that are known, in their order', async () => {
    const text = lines('ssh-rsa', 'ssh-ed25519')
    assert.deepEqual(await hostKeyAlgorithms(text, at, ['ssh-rsa', 'rsa-sha2-256', 'ecdsa-sha2-nistp256']), [
      'ssh-rsa',
      'rsa-sha2-256',
    ])
  })

  for (const [text, allowed, why] of [
    [`other.com ${ed25519}`, [], "knownhosts: no entry for 'example.com'"],
    [`example.com ${ed25519}\n@revoked * ${ed25519}`, [], "knownhosts: the keys of 'example.com' are revoked"],
    [lines('ssh-dss'), [], "knownhosts: no usable type of key for 'example.com'"],
    [
      lines('ssh-ed25519'),
      ['rsa-sha2-512'],
      "knownhosts: no usable type of key of those that --ssh-hostkey-algos allows for 'example.com'",
    ],
  ] as const) {
    it(`are none: ${why}`, async () => {
      await assert.rejects(hostKeyAlgorithms(text, at, allowed), { message: why })
    })
  }
})
