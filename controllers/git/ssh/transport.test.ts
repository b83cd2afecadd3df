import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { startForwardProxy } from '../../../e2e/tools/forward-proxy.ts'
import { listen } from '../../../e2e/tools/port.ts'
import { makeSshKey } from '../../../e2e/ssh-server.ts'
import { eventually, eventuallyHolds } from '../../runtime/eventually.ts'
import type { Access } from '../access/access.ts'
import { runGit } from '../git.ts'
import { failureOf } from '../test-support.ts'
import type { SshRemote } from './remote.ts'
import { commandsWith, lsRemote, openSshStage, type SshStage } from './test-support.ts'

const signal = () => AbortSignal.timeout(60_000)
const main = { prefixes: ['refs/heads/main'], keep: (name: string) => name === 'refs/heads/main' }

describe('what carries ssh', function () {
  this.timeout(120_000)
  let stage: SshStage
  let commit: string

  before(async () => {
    stage = await openSshStage()
    commit = await (await stage.server.repository('app.git')).commit({ 'a.txt': 'one' }, 'first')
  })
  after(() => stage.close())
  afterEach(async () => assert.deepEqual(await stage.files(), [], 'files with keys are left'))

  /** A server that does nothing but say `greeting`, while `work` runs. */
  async function withSilentServer(greeting: string, work: (port: number) => Promise<void>): Promise<void> {
    const sockets = new Set<Socket>()
    const server: Server = createServer((socket) => {
      sockets.add(socket.on('error', () => undefined))
      socket.write(greeting)
    })
    const port = await listen(server)
    try {
      await work(port)
    } finally {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    }
  }

  const silent = (port: number, over?: Access) =>
    stage.remote(
      { known_hosts: stage.server.knownHosts().replace(/\S+/, '*') },
      { url: `ssh://git@127.0.0.1:${port}/x`, ...(over && { over }) },
    )

  const overProxy = (url: string, password = 'swordfish'): Access => ({
    key: 'proxy',
    secrets: [password],
    proxy: { url, username: 'me', password },
  })

  for (const [what, greeting] of [
    ['says nothing', ''],
    ['says who it is and no more', 'SSH-2.0-silent\r\n'],
  ] as const) {
    it(`is ended with all its processes where the server ${what}`, async () => {
      const proxy = await startForwardProxy()
      try {
        await withSilentServer(greeting, async (port) => {
          const abort = new AbortController()
          const failure = failureOf(silent(port, overProxy(proxy.url)).listRefs(main, abort.signal))
          // ssh, and the program that carries it through the proxy.
          const running = await eventually(async () => {
            const found = await commandsWith(String(port))
            return found.size === 2 && found
          })
          abort.abort()
          assert.match((await failure).message, /: aborted$/)
          await eventuallyHolds(async () => assert.deepEqual(await commandsWith(String(port)), new Map()))
          for (const line of running.values()) assert.doesNotMatch(line, /swordfish/)
        })
      } finally {
        await proxy.stop()
      }
    })
  }

  it('is ended with a fetch of git', async () => {
    await withSilentServer('', async (port) => {
      const { url, env, release } = await silent(port).connect(stage.home)
      const abort = new AbortController()
      const failure = runGit(['ls-remote', url], { env, signal: abort.signal }).then(
        () => assert.fail('did not fail'),
        (err: unknown) => err,
      )
      await eventually(async () => (await commandsWith(`Port=${port}`)).size > 0)
      abort.abort()
      assert.equal(await failure, abort.signal.reason)
      await eventuallyHolds(async () => assert.deepEqual(await commandsWith(String(port)), new Map()))
      await release()
    })
  })

  it('has keys in files of its user alone, and neither them nor the passphrase where others see them', async () => {
    const { identity } = await makeSshKey({ passphrase: 'hunter2' })
    const known_hosts = stage.server.knownHosts().replace(/\S+/, '*')
    await withSilentServer('', async (port) => {
      const url = `ssh://git@127.0.0.1:${port}/x`
      const remote = stage.remote({ identity, known_hosts, password: 'hunter2' }, { url })
      const abort = new AbortController()
      const failure = failureOf(remote.listRefs(main, abort.signal))
      const running = await eventually(async () => {
        const found = await commandsWith(`Port=${port}`)
        return found.size > 0 && found
      })
      for (const line of running.values()) assert.doesNotMatch(line, /hunter2|PRIVATE KEY/)
      const folder = join(stage.home.run, (await stage.files())[0]!)
      assert.equal((await stat(folder)).mode & 0o777, 0o700)
      for (const name of await readdir(folder)) {
        assert.equal((await stat(join(folder, name))).mode & 0o077, 0, name)
        assert.doesNotMatch(await readFile(join(folder, name), 'utf8'), /hunter2/)
      }
      abort.abort()
      await failure
    })
  })

  it('reads no more of an answer than is allowed, and no more than is needed', async () => {
    const many = await stage.server.repository('many.git')
    const tip = await many.commit({ a: '' }, 'x')
    const commands = Array.from({ length: 500 }, (_, i) => `create refs/heads/branch-${i} ${tip}\n`)
    await many.git(['update-ref', '--stdin'], commands.join(''))
    const url = `${stage.server.url}/many.git`
    const asking = (limits: { maxAnswerBytes: number; maxRefs: number }) => stage.remote({}, { url, limits })
    const all = { prefixes: ['refs/'], keep: () => true }
    const tooLong = await failureOf(asking({ maxAnswerBytes: 20_000, maxRefs: 1e6 }).listRefs(all, signal()))
    assert.match(tooLong.message, /the answer is longer than 20000 bytes$/)
    const tooMany = await failureOf(asking({ maxAnswerBytes: 1e6, maxRefs: 100 }).listRefs(all, signal()))
    assert.match(tooMany.message, /more than 100 refs$/)
    const few = await asking({ maxAnswerBytes: 1e6, maxRefs: 100 }).listRefs({ ...all, enough: 3 }, signal())
    assert.equal(few.length, 3)
  })

  it('takes no answer for one that is none', async () => {
    const script = join(stage.server.root, 'answer')
    const own = await openSshStage({ config: [`ForceCommand sh ${script}`] })
    try {
      for (const [answer, why] of [
        ['echo Welcome to the server', /packet length "Welc" is not hexadecimal$/],
        ['true', /the answer ends too early$/],
        ['printf 000eversion', /the stream ends within a packet$/],
        ["printf '002aERR access denied, go to the frontdesk'", /remote error: access denied, go to the frontdesk$/],
        ['echo ERROR: Repository not found. >&2; exit 1', /remote: Repository not found\.$/],
      ] as const) {
        await writeFile(script, answer)
        const err = await failureOf(own.remote().listRefs(main, signal()))
        assert.equal(err.reason, 'GitOperationFailed')
        assert.match(err.message, why)
      }
    } finally {
      await own.close()
    }
  })

  it('asks a server that knows only version 0', async () => {
    const own = await openSshStage({ protocolV2: false })
    try {
      const repository = await own.server.repository('app.git')
      const empty = own.remote({}, { url: `${own.server.url}/empty.git` })
      await own.server.repository('empty.git')
      assert.deepEqual(await empty.listRefs(main, signal()), [])
      const oid = await repository.commit({ a: '' }, 'x')
      await repository.tag('v1', { message: 'annotated' })
      const remote = own.remote()
      const [tag] = await remote.listRefs({ prefixes: ['refs/tags/v1'], keep: (n) => n === 'refs/tags/v1' }, signal())
      assert.equal(tag?.peeled, oid)
      assert.equal(remote.features?.version, 0)
      assert.deepEqual(await remote.listRefs({ ...main, enough: 1 }, signal()), [{ name: 'refs/heads/main', oid }])
    } finally {
      await own.close()
    }
  })

  describe('a proxy', () => {
    const told = async (remote: SshRemote) => {
      const answer = await lsRemote(remote, stage.home)
      assert.equal(answer, `${commit}\trefs/heads/main\n`)
    }

    for (const kind of ['url', 'socksUrl'] as const) {
      it(`of the kind ${kind === 'url' ? 'http' : 'socks5'} carries questions and fetches, with credentials`, async () => {
        const proxy = await startForwardProxy({
          auth: { username: 'me', password: 'swordfish' },
          hosts: { 'git.internal': '127.0.0.1' },
        })
        try {
          // A name that only the proxy can resolve: nothing goes past it.
          const { port, user } = stage.server
          const known_hosts = stage.server.knownHosts().replace('127.0.0.1', 'git.internal')
          const url = `ssh://${user}@git.internal:${port}/app.git`
          const remote = stage.remote({ known_hosts }, { url, over: overProxy(proxy[kind]) })
          assert.deepEqual(await remote.listRefs(main, signal()), [{ name: 'refs/heads/main', oid: commit }])
          await told(remote)
          assert.deepEqual(proxy.counters().targets, [`git.internal:${port}`, `git.internal:${port}`])

          const wrong = stage.remote({ known_hosts }, { url, over: overProxy(proxy[kind], 'guessed') })
          const err = await failureOf(wrong.listRefs(main, signal()))
          assert.match(
            err.message,
            /failed to connect through the proxy: (?:it answers 407|it does not accept the cred)/,
          )
          assert.doesNotMatch(err.message, /guessed/)
          assert.equal(proxy.counters().refused, 1)
        } finally {
          await proxy.stop()
        }
      })
    }

    it('that is not there, or does not get through, is told from the server', async () => {
      const dead = stage.remote({}, { over: overProxy('http://127.0.0.1:1') })
      const err = await failureOf(dead.listRefs(main, signal()))
      assert.match(err.message, /failed to connect through the proxy: connect ECONNREFUSED 127\.0\.0\.1:1$/)
      const proxy = await startForwardProxy()
      try {
        for (const url of [proxy.url, proxy.socksUrl]) {
          const lost = await failureOf(silent(1, overProxy(url)).listRefs(main, signal()))
          assert.match(lost.message, /failed to connect through the proxy: \S/)
        }
      } finally {
        await proxy.stop()
      }
    })

    it('is not at fault where the server hangs up', async () => {
      const proxy = await startForwardProxy()
      const server = createServer((socket) => socket.on('error', () => undefined).end())
      const port = await listen(server)
      try {
        for (const over of [undefined, overProxy(proxy.url), overProxy(proxy.socksUrl)]) {
          const { message } = await failureOf(silent(port, over).listRefs(main, signal()))
          assert.match(message, /Connection (?:closed|reset) by/)
          assert.doesNotMatch(message, /proxy/)
        }
      } finally {
        await proxy.stop()
        server.close()
      }
    })
  })
})
