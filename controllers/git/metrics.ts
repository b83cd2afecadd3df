import { Gauge } from 'prom-client'
import { registry } from '../runtime/metrics.ts'

const registers = [registry]

export const mirrorCount = new Gauge({
  name: 'openflux_git_mirrors',
  help: 'Mirrors of Git repositories in the cache.',
  registers,
})

export const mirrorBytes = new Gauge({
  name: 'openflux_git_mirror_bytes',
  help: 'Bytes that the mirrors take together.',
  registers,
})
