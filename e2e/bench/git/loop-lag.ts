// Loaded into a measured process by `--import`: at SIGUSR2 it tells how late timers were since the last one, and begins anew.
import { monitorEventLoopDelay } from 'node:perf_hooks'

/** What one report says: how much later than asked for timers came, and how many there were. */
export interface Lag {
  samples: number
  p99Ms: number
  maxMs: number
}

const resolutionMs = 1
const delays = monitorEventLoopDelay({ resolution: resolutionMs })
delays.enable()
process.on('SIGUSR2', () => {
  const ms = (nanoseconds: number) => Math.max(0, nanoseconds / 1e6 - resolutionMs)
  const lag: Lag = { samples: delays.count, p99Ms: ms(delays.percentile(99)), maxMs: ms(delays.max) }
  delays.reset()
  process.stderr.write(`openflux-bench: loop lag ${JSON.stringify(lag)}\n`)
})
