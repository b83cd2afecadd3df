import assert from 'node:assert/strict'
import { StalledError } from '../runtime/errors.ts'
import { followRedirect, parseRepositoryUrl } from './url.ts'

function refusal(text: string): StalledError {
  try {
    parseRepositoryUrl(text)
  } catch (err) {
    assert.ok(err instanceof StalledError, String(err))
    assert.equal(err.reason, 'URLInvalid')
    return err
  }
  return assert.fail(`accepted ${text}`)
}

describe('the URL of a repository', () => {
  it('is taken as it is written, less its userinfo and trailing slashes', () => {
    assert.deepEqual(parseRepositoryUrl('https://example.com/org/app.git'), { href: 'https://example.com/org/app.git' })
    assert.deepEqual(parseRepositoryUrl('http://example.com:8080/a%20b//'), { href: 'http://example.com:8080/a%20b' })
    assert.deepEqual(parseRepositoryUrl('https://user:p%40ss@example.com/app'), {
      href: 'https://example.com/app',
      userinfo: { username: 'user', password: 'p@ss' },
    })
  })

  const hostile: [string, RegExp][] = [
    ['', /must not be empty/],
    ['--upload-pack=touch x', /must not start with '-'/],
    ['-oProxyCommand=x', /must not start with '-'/],
    ['ext::sh -c true', /white space/],
    ['file:///etc', /must start with http/],
    ['fd::7', /must start with http/],
    ['git://example.com/x', /must start with http/],
    ['git+ssh://example.com/x', /must start with http/],
    ['HTTPS://example.com/x', /must start with http/],
    ['git@example.com:x', /must start with http/],
    ['git@example.com:org/app.git', /must start with .*, write ssh:\/\/user@host\/path/],
    ['ssh://', /host is missing/],
    ['ssh:///x', /host is missing/],
    ['ssh://git@/x', /host is missing/],
    ['ssh://git@example.com', /path is missing/],
    ['ssh://git@example.com//', /path is missing/],
    ['ssh://git@example.com:org/app', /port is not a number/],
    ['ssh://git@example.com:0/x', /port is not a number/],
    ['ssh://git@example.com:65536/x', /port is not a number/],
    ['ssh://-oProxyCommand=x/y', /host must not start with '-'/],
    ['ssh://git@-oProxyCommand=x/y', /host must not start with '-'/],
    ['ssh://-oProxyCommand=x@example.com/y', /user is not a plain name/],
    ['ssh://%2doProxyCommand=x@example.com/y', /user is not a plain name/],
    ['ssh://@example.com/y', /user is not a plain name/],
    ['ssh://git@%2doProxyCommand=x/y', /neither a name nor an address/],
    ['ssh://git@a$(touch x)/y', /white space/],
    ['ssh://git@`x`/y', /neither a name nor an address/],
    ['ssh://git@a;b/y', /neither a name nor an address/],
    ['ssh://git@[::1/y', /neither a name nor an address|port is not/],
    ['ssh://git@[fe80::1%25eth0]/y', /neither a name nor an address/],
    ['ssh://git@[::x]/y', /neither a name nor an address/],
    ['ssh://git@example.com/a%0ab', /control character/],
    ['ssh://git@example.com/a%00b', /control character/],
    ['ssh://git@example.com/%zz', /percent-encoded/],
    ['ssh://git@example.com/x?y', /query/],
    [`ssh://git@${'x'.repeat(254)}/y`, /neither a name nor an address/],
    ['https://example.com/x\n', /control character/],
    ['https://example.com/\0', /control character/],
    ['https://example.com/\u202ex', /control character/],
    ['https://example.com\\x', /backslash/],
    ['https:///x', /host is missing|not a URL/],
    ['https://user@/x', /not a URL|host is missing/],
    ['https://', /not a URL|host is missing/],
    ['https://-x/y', /must not start with '-'|not a URL/],
    ['https://example.com:99999/x', /not a URL/],
    ['https://example.com/x?token=1', /query/],
    ['https://example.com/x#y', /fragment/],
    ['https://u:%zz@example.com/x', /percent-encoded/],
    [`https://example.com/${'x'.repeat(3000)}`, /longer than 2048/],
  ]
  for (const [text, why] of hostile) {
    it(`is not ${JSON.stringify(text.slice(0, 40))}`, () => {
      const { message } = refusal(text)
      assert.match(message, why)
      assert.match(message, /^failed to parse url '/)
      assert.ok(message.length < 400)
      assert.doesNotMatch(message, /\p{C}/u)
    })
  }

  for (const text of [
    'ssh://user:hunter2@example.com/x',
    'https://user:hunter2@/x',
    'https://user:hunter2@example.com:99999/x',
    'https://user:hun/ter2@example.com/x ',
    'https://user:hun?ter2@example.com/x',
    'https://user:hun#ter2@example.com/x',
    'https://user:hun@ter2@example.com/ x',
    'https://example.com/x?password=hunter2@y',
    'https://u:%zzhunter2@example.com/x',
  ]) {
    it(`shows no part of the credentials in ${text}`, () => assert.doesNotMatch(refusal(text).message, /hun|ter2/))
  }
})

describe('a redirect', () => {
  const suffix = '/info/refs?service=git-upload-pack'
  const follow = (base: string, location: string) => followRedirect(base, suffix, location)

  it('may take credentials to the same host and port, or from http up to https', () => {
    assert.deepEqual(follow('https://a.example/x', `/y${suffix}`), { base: 'https://a.example/y', credentials: true })
    assert.equal(follow('http://a.example/x', `https://a.example/x${suffix}`).credentials, true)
  })

  it('takes no credentials to another host, port or scheme', () => {
    assert.equal(follow('https://a.example/x', `https://b.example/x${suffix}`).credentials, false)
    assert.equal(follow('https://a.example/x', `https://a.example:8443/x${suffix}`).credentials, false)
    assert.equal(follow('http://a.example:8080/x', `https://a.example:8443/x${suffix}`).credentials, false)
    assert.equal(follow('https://a.example/x', `https://user:pw@a.example.evil/x${suffix}`).credentials, false)
  })

  it('drops userinfo that the server puts into it', () => {
    assert.equal(follow('https://a.example/x', `https://user:pw@a.example/y${suffix}`).base, 'https://a.example/y')
  })

  for (const [location, why] of [
    [`http://a.example/x${suffix}`, /from https to http/],
    [`file:///etc/passwd${suffix}`, /another protocol/],
    [`https://169.254.169.254/x${suffix}`, /link-local/],
    [`https://[fe80::1]/x${suffix}`, /link-local/],
    [`https://[::ffff:169.254.169.254]/x${suffix}`, /link-local/],
    [`https://[fd00:ec2::254]/x${suffix}`, /link-local/],
    [`https://metadata.google.internal/x${suffix}`, /link-local/],
    ['https://a.example/login', /does not end with/],
    ['https://', /not a URL/],
  ] as const) {
    it(`does not lead to ${location.slice(0, 40)}`, () => {
      assert.throws(() => follow('https://a.example/x', location), why)
    })
  }
})
