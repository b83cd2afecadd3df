import assert from 'node:assert/strict'
import { StalledError } from '../controllers/runtime/errors.ts'
import { parseSourceRef, sourceKey, type SourceRef } from './source-ref.ts'

const keyOfRef = (ref: SourceRef) => sourceKey(parseSourceRef(ref, 'apps'))

describe('source reference', () => {
  const keys: [string, SourceRef, string][] = [
    [
      'a kind of Flux needs no apiVersion',
      { kind: 'GitRepository', name: 'a' },
      'source.toolkit.fluxcd.io/GitRepository/apps/a',
    ],
    ['nor does an Artifact', { kind: 'Artifact', name: 'a' }, 'openfluxcd.ocm.software/Artifact/apps/a'],
    [
      'an empty apiVersion is none',
      { apiVersion: '', kind: 'Bucket', name: 'a' },
      'source.toolkit.fluxcd.io/Bucket/apps/a',
    ],
    [
      'the version is no part of it',
      { apiVersion: 'source.toolkit.fluxcd.io/v9', kind: 'Bucket', name: 'a' },
      'source.toolkit.fluxcd.io/Bucket/apps/a',
    ],
    [
      'a known kind of another group is another kind',
      { apiVersion: 'example.com/v1', kind: 'Bucket', name: 'a' },
      'example.com/Bucket/apps/a',
    ],
    ['the core group is empty', { apiVersion: 'v1', kind: 'ConfigMap', name: 'a' }, '/ConfigMap/apps/a'],
    [
      'a namespace of its own',
      { kind: 'HelmChart', name: 'a', namespace: 'other' },
      'source.toolkit.fluxcd.io/HelmChart/other/a',
    ],
    [
      'names of roles have colons',
      { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'Role', name: 'system:x' },
      'rbac.authorization.k8s.io/Role/apps/system:x',
    ],
  ]
  for (const [what, ref, key] of keys) it(what, () => assert.equal(keyOfRef(ref), key))

  const refused: [string, any, RegExp][] = [
    ['is missing', undefined, /^sourceRef is missing/],
    ['is a string', 'GitRepository/a', /^sourceRef is "GitRepository\/a"/],
    ['has no kind', { name: 'a' }, /^sourceRef\.kind is missing/],
    ['has a kind that is none', { kind: 'a/b', name: 'a' }, /^sourceRef\.kind is "a\/b"/],
    ['has a kind that is an object', { kind: {}, name: 'a' }, /^sourceRef\.kind is a value of type object/],
    ['has an empty name', { kind: 'Bucket', name: '' }, /^sourceRef\.name is missing/],
    ['has a name that is a path', { kind: 'Bucket', name: '../a' }, /^sourceRef\.name is/],
    ['has the name ..', { kind: 'Bucket', name: '..' }, /^sourceRef\.name is/],
    ['has a name of 254 characters', { kind: 'Bucket', name: 'a'.repeat(254) }, /^sourceRef\.name is/],
    ['has a namespace with a slash', { kind: 'Bucket', name: 'a', namespace: 'x/y' }, /^sourceRef\.namespace is/],
    [
      'has no apiVersion for an unknown kind',
      { kind: 'Motd', name: 'a' },
      /^sourceRef\.apiVersion is missing: add the apiVersion of kind Motd, e\.g\. example\.com\/v1/,
    ],
    [
      'has two slashes in its apiVersion',
      { apiVersion: 'a/b/c', kind: 'Motd', name: 'a' },
      /^sourceRef\.apiVersion is "a\/b\/c": it must be <group>\/<version>/,
    ],
    [
      'has an apiVersion without version',
      { apiVersion: 'example.com/', kind: 'Motd', name: 'a' },
      /^sourceRef\.apiVersion/,
    ],
    [
      'has an apiVersion of 5000 characters',
      { apiVersion: `${'a.'.repeat(2500)}a/v1`, kind: 'Motd', name: 'a' },
      /^sourceRef\.apiVersion/,
    ],
  ]
  for (const [what, ref, message] of refused) {
    it(`is refused where it ${what}`, () =>
      assert.throws(
        () => keyOfRef(ref),
        (err) => err instanceof StalledError && err.reason === 'InvalidSourceRef' && message.test(err.message),
      ))
  }
})
