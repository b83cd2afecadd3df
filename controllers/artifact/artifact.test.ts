import assert from 'node:assert/strict'
import type { Kind } from '../runtime/kind.ts'
import { artifactFolder, artifactName } from './artifact.ts'

const git: Kind = { group: 'source.toolkit.fluxcd.io', version: 'v1', kind: 'GitRepository', plural: 'gitrepositories' }
const kindOf = (group: string): Kind => ({ group, version: 'v1', kind: 'Http', plural: 'https' })
const object = (name: string, namespace = 'ns') => ({ metadata: { name, namespace } })

describe('the name of an Artifact', () => {
  it('is kind, namespace and name in lower case for the kinds of Flux', () => {
    assert.equal(artifactName(git, object('podinfo')), 'gitrepository-ns-podinfo')
    assert.equal(artifactFolder(git, object('podinfo')), 'gitrepository/ns/podinfo')
  })

  it('differs for kinds of the same name in other groups', () => {
    const [a, b] = [kindOf('a.example'), kindOf('b.example')]
    assert.match(artifactName(a, object('x')), /^http-ns-x-[0-9a-f]{8}$/)
    assert.notEqual(artifactName(a, object('x')), artifactName(b, object('x')))
    assert.equal(artifactFolder(a, object('x')), 'http.a.example/ns/x')
  })

  it('differs where joining the parts gives the same text', () => {
    const kind = kindOf('a.example')
    assert.notEqual(artifactName(kind, object('b-c', 'a')), artifactName(kind, object('c', 'a-b')))
  })

  it('stays a valid and distinct name when the parts are long', () => {
    const names = ['x', 'y'].map((end) => artifactName(git, object('n'.repeat(251) + `.${end}`)))
    for (const name of names) {
      assert.ok(name.length <= 253)
      assert.match(name, /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/)
    }
    assert.notEqual(names[0], names[1])
  })
})
