// The file server of this project as a process of its own: `node server-process.ts FOLDER [MEMORY]`. Prints where it listens and where it tells its lag.
import { createServer } from 'node:http'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { pino } from 'pino'
import { makeFileServer, openStorage } from '../../../controllers/artifact/index.ts'
import { listen } from '../../tools/port.ts'

/** The histogram is fed by a timer of this length, which is part of every value in it. */
const resolutionMs = 5

const [root = '', memoryBytes] = process.argv.slice(2)
const storage = await openStorage({ root })
const server = await makeFileServer({
  storage,
  state: { ready: () => true, expects: () => false, current: () => undefined },
  onDamage: (path) => console.error(`damaged: ${path}`),
  log: pino({ level: 'error' }),
  memoryBytes: memoryBytes === undefined ? undefined : Number(memoryBytes),
}).listen('127.0.0.1:0')

const delay = monitorEventLoopDelay({ resolution: resolutionMs })
delay.enable()
/** Tells the lag since it was asked last. */
const lag = createServer((_req, res) => {
  const [p99Ms, maxMs] = [delay.percentile(99), delay.max].map((ns) => Math.max(0, ns / 1e6 - resolutionMs))
  delay.reset()
  res.end(JSON.stringify({ p99Ms, maxMs }))
})
console.log(`lag on ${await listen(lag)}`)
console.log(`listening on ${server.port}`)
