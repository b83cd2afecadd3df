import assert from 'node:assert/strict'
import { parseTarget } from './request-target.ts'

const folder = 'gitrepository/ns/app'

const paths: Record<string, string> = {
  [`/${folder}/abc.tar.gz`]: `${folder}/abc.tar.gz`,
  [`/${folder}/latest.tar.gz`]: `${folder}/latest.tar.gz`,
  [`/${folder}/abc.tar.gz?x=y&revision=z`]: `${folder}/abc.tar.gz`,
  [`/${folder}/sha256%3Aabc%2B1.tar.gz`]: `${folder}/sha256:abc+1.tar.gz`,
  '/http.openfluxcd.openfluxcd/ns/a.b/x.tar.gz': 'http.openfluxcd.openfluxcd/ns/a.b/x.tar.gz',
}

const addresses: Record<string, unknown> = {
  'revision=main@sha1:abc': { revision: 'main@sha1:abc' },
  'revision=main%40sha1%3Aabc': { revision: 'main@sha1:abc' },
  'revision=feature%2Fx@sha1:abc&x=1': { revision: 'feature/x@sha1:abc' },
  'revision=1.0.0+build': { revision: '1.0.0+build' },
  'digest=sha256:00': { digest: 'sha256:00' },
  'time=2026-01-02T03:04:05Z': { time: new Date('2026-01-02T03:04:05Z') },
  'time=2026-01-02T03:04:05.25+02:00': { time: new Date('2026-01-02T01:04:05.250Z') },
  'time=2026-01-02t03:04:05%2B02:00': { time: new Date('2026-01-02T01:04:05Z') },
}

const refused: [string, number][] = [
  ['', 404],
  ['*', 400],
  ['http://host/gitrepository/ns/app/x.tar.gz', 400],
  ['/', 404],
  ['/favicon.ico', 404],
  ['/gitrepository', 404],
  ['/gitrepository/', 404],
  ['/gitrepository/ns/', 404],
  [`/${folder}`, 404],
  [`/${folder}/`, 404],
  [`/${folder}?`, 404],
  [`/${folder}?x=y`, 404],
  [`/${folder}/x`, 404],
  [`/${folder}/x.tar.gz/`, 404],
  [`/${folder}/x.tar.gz/y`, 404],
  [`/${folder}/.history.json`, 404],
  [`/${folder}/.x.tar.gz`, 404],
  ['/.openflux/id', 404],
  ['/.openflux/blobs/sha256/ab/x.tar.gz', 404],
  [`//${folder}/x.tar.gz`, 404],
  [`/GitRepository/ns/app/x.tar.gz`, 404],
  [`/${folder}/${'x'.repeat(255)}.tar.gz`, 404],
  ['/../etc/passwd', 400],
  ['/gitrepository/../../etc/x.tar.gz', 400],
  ['/gitrepository/./app/x.tar.gz', 400],
  [`/${folder}/..`, 400],
  ['/..%2f..%2f..%2fetc/passwd', 400],
  [`/${folder}/..%2Fapp%2Fx.tar.gz`, 400],
  ['/%2e%2e/x', 400],
  ['/%2e/x', 400],
  ['/gitrepository%2fns%2fapp%2fx.tar.gz', 400],
  [`/${folder}/x%00.tar.gz`, 400],
  [`/${folder}/x%0a.tar.gz`, 400],
  [`/${folder}/..%5cx.tar.gz`, 400],
  [`/${folder}/..\\x.tar.gz`, 400],
  [`/${folder}/%zz.tar.gz`, 400],
  [`/${folder}/%`, 400],
  [`/${folder}/%ff.tar.gz`, 400],
  ['/%252e%252e/x', 404],
  [`/${folder}/%c0%ae%c0%ae`, 400],
  [`/${folder}?revision=`, 400],
  [`/${folder}?revision=%zz`, 400],
  [`/${folder}?revision=a&revision=b`, 400],
  [`/${folder}?revision=a&digest=b`, 400],
  [`/${folder}?time=yesterday`, 400],
  [`/${folder}?time=2026-01-02`, 400],
  [`/${folder}?time=2026-13-02T03:04:05Z`, 400],
  [`/${folder}?time=0`, 400],
  [`/${'x'.repeat(20_000)}`, 414],
  [`/${folder}?revision=${'x'.repeat(20_000)}`, 414],
]

describe('target of a request', () => {
  for (const [url, path] of Object.entries(paths)) {
    it(`${url} is a path`, () => assert.deepEqual(parseTarget(url), { path }))
  }
  for (const [query, address] of Object.entries(addresses)) {
    it(`?${query} is an address`, () =>
      assert.deepEqual(parseTarget(`/${folder}?${query}`), { folder, query: address }))
  }
  for (const [url, status] of refused) {
    it(`${JSON.stringify(url.slice(0, 60))} is refused with ${status}`, () => {
      const target = parseTarget(url)
      assert.equal('status' in target && target.status, status)
    })
  }
})
