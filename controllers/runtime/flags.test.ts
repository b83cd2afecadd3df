import assert from 'node:assert/strict'
import { makeCommand, type RuntimeFlags } from './flags.ts'

function parse(argv: string[], env: Record<string, string> = {}): RuntimeFlags {
  const saved = { ...process.env }
  Object.assign(process.env, env)
  try {
    const command = makeCommand('test', 'test')
      .exitOverride()
      .configureOutput({ writeErr: () => undefined })
    return command.parse(argv, { from: 'user' }).opts<RuntimeFlags>()
  } finally {
    process.env = saved
  }
}

describe('flags', () => {
  it("have Flux's defaults", () => {
    const flags = parse([])
    assert.deepEqual(
      [
        flags.metricsAddr,
        flags.healthAddr,
        flags.concurrent,
        flags.requeueDependency,
        flags.intervalJitterPercentage,
        flags.minRetryDelay,
        flags.maxRetryDelay,
      ],
      [':8080', ':9440', 2, 30_000, 5, 750, 900_000],
    )
    assert.deepEqual(
      [flags.watchAllNamespaces, flags.enableLeaderElection, flags.noCrossNamespaceRefs],
      [true, false, true],
    )
  })

  it('take booleans as Go does: alone, =true and =false', () => {
    assert.equal(parse(['--enable-leader-election']).enableLeaderElection, true)
    assert.equal(parse(['--enable-leader-election=false']).enableLeaderElection, false)
    assert.equal(parse(['--no-cross-namespace-refs=false']).noCrossNamespaceRefs, false)
    assert.equal(parse(['--watch-all-namespaces=false']).watchAllNamespaces, false)
  })

  it('fall back to the environment, which the command line overrides', () => {
    assert.equal(parse([], { METRICS_ADDR: ':1' }).metricsAddr, ':1')
    assert.equal(parse(['--metrics-addr=:2'], { METRICS_ADDR: ':1' }).metricsAddr, ':2')
    assert.equal(parse([], { REQUEUE_DEPENDENCY: '5s' }).requeueDependency, 5_000)
    assert.equal(parse([], { ENABLE_LEADER_ELECTION: 'true' }).enableLeaderElection, true)
    assert.equal(parse([], { RUNTIME_NAMESPACE: 'here' }).runtimeNamespace, 'here')
  })

  it('open feature gates by name', () => {
    const off = { CacheSecretsAndConfigMaps: false, ObjectLevelWorkloadIdentity: false }
    assert.deepEqual(parse([]).featureGates, off)
    const text = 'ObjectLevelWorkloadIdentity=true,CacheSecretsAndConfigMaps=false'
    assert.deepEqual(parse([`--feature-gates=${text}`]).featureGates, { ...off, ObjectLevelWorkloadIdentity: true })
    assert.deepEqual(parse([], { FEATURE_GATES: text }).featureGates, { ...off, ObjectLevelWorkloadIdentity: true })
    const { defaultServiceAccount, tokenCacheMaxSize, tokenCacheMaxDuration } = parse([])
    assert.deepEqual([defaultServiceAccount, tokenCacheMaxSize, tokenCacheMaxDuration], ['', 100, 3_600_000])
  })

  for (const argument of [
    '--feature-gates=Unknown=true',
    '--feature-gates=ObjectLevelWorkloadIdentity',
    '--feature-gates=ObjectLevelWorkloadIdentity=yes',
    '--token-cache-max-size=-1',
    '--concurrent=0',
    '--concurrent=x',
    '--requeue-dependency=1d',
    '--interval-jitter-percentage=100',
    '--log-level=loud',
    '--enable-leader-election=maybe',
    '--unknown',
  ]) {
    it(`refuse ${argument}`, () => assert.throws(() => parse([argument])))
  }

  it('explain themselves', () => {
    const help = makeCommand('test', 'what it is').helpInformation()
    assert.match(help, /what it is/)
    assert.match(help, /--watch-label-selector/)
    assert.match(help, /env: METRICS_ADDR/)
  })
})
