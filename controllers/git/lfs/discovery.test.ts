import assert from 'node:assert/strict'
import { chmod, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { failureOf } from '../test-support.ts'
import { anonymous } from '../access/access.ts'
import { basicCredentials } from '../access/credentials.ts'
import { openSshStage, type SshStage } from '../ssh/test-support.ts'
import { temporaryFolder } from '../../../e2e/tools/temporary.ts'
import { connectLfs } from './discovery.ts'

describe('the LFS API of a repository', function () {
  this.timeout(60_000)
  const signal = AbortSignal.timeout(60_000)
  const { authorization } = basicCredentials('user', 'pass')
  const access = { ...anonymous, authorization: authorization! }

  const places: [string, string][] = [
    ['https://example.com/team/app', 'https://example.com/team/app.git/info/lfs'],
    ['https://example.com/team/app.git', 'https://example.com/team/app.git/info/lfs'],
    ['http://[::1]:8080/app', 'http://[::1]:8080/app.git/info/lfs'],
  ]
  for (const [url, api] of places) {
    it(`is beside it: ${url}`, async () => {
      const found = await connectLfs({ url, access }, signal)
      assert.deepEqual([found.api.href, found.headers], [api, { authorization }])
    })
  }

  describe('over ssh', () => {
    let stage: SshStage
    let folder: string
    let script: string

    before(async () => {
      folder = await temporaryFolder()
      await chmod(folder, 0o755) // the account that runs it may be another one
      script = join(folder, 'authenticate')
      stage = await openSshStage({ config: [`ForceCommand /bin/sh ${script}`] })
    })
    after(async () => {
      await stage.close()
      await rm(folder, { recursive: true, force: true })
    })

    const answers = (shell: string) => writeFile(script, `${shell}\n`, { mode: 0o755 })
    const connect = () => connectLfs(stage.remote({}, { url: `${stage.server.url}/team/my%20app.git` }), signal)

    it('is where git-lfs-authenticate says, and for whom', async () => {
      const answer = `{"href":"https://lfs.example.com/x/","header":{"Authorization":"RemoteAuth 1"},"expires_in":60}`
      await answers(
        `[ "$SSH_ORIGINAL_COMMAND" = "git-lfs-authenticate '/team/my app.git' download" ] && echo '${answer}'`,
      )
      const { api, headers } = await connect()
      assert.deepEqual([api.href, headers], ['https://lfs.example.com/x', { authorization: 'RemoteAuth 1' }])
      assert.deepEqual(await stage.files(), [])
    })

    const refusals: [string, string, RegExp][] = [
      [
        'there is no such command',
        'echo "git-lfs-authenticate: not found" >&2; exit 127',
        /git-lfs-authenticate: not found$/,
      ],
      ['it says no JSON', 'echo welcome', /git-lfs-authenticate: it says something else than JSON$/],
      ['it says nothing of use', 'echo []', /git-lfs-authenticate: it does not say where the objects are$/],
      ['it says no address', `echo '{"href":"file:///x"}'`, /git-lfs-authenticate: redirected to another protocol$/],
      ['it says odd headers', `echo '{"href":"http://x","header":{"a":1}}'`, /comes with a header that is none$/],
      [
        'it says a long address',
        `printf '{"href":"http://x/%s"}' "$(head -c 10000 /dev/zero | tr '\\0' x)"`,
        /address is longer than 8192 characters$/,
      ],
      ['it says too much', 'head -c 100000 /dev/zero', /ssh wrote more than 65536 bytes$/],
    ]
    for (const [what, shell, why] of refusals) {
      it(`is not found where ${what}`, async () => {
        await answers(shell)
        const err = await failureOf(connect())
        assert.equal(err.reason, 'GitOperationFailed')
        assert.match(err.message, why)
      })
    }
  })
})
