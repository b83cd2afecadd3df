import { Counter, Gauge, Histogram, Registry } from 'prom-client'

/** Every metric of this process. Names are those of controller-runtime, client-go and Flux, so that existing dashboards work. */
export const registry = new Registry()

const registers = [registry]

export const reconcileTotal = new Counter({
  name: 'controller_runtime_reconcile_total',
  help: 'Passes per controller by result: success, error, requeue_after or requeue.',
  labelNames: ['controller', 'result'] as const,
  registers,
})

export const reconcileErrors = new Counter({
  name: 'controller_runtime_reconcile_errors_total',
  help: 'Failed passes per controller.',
  labelNames: ['controller'] as const,
  registers,
})

export const terminalErrors = new Counter({
  name: 'controller_runtime_terminal_reconcile_errors_total',
  help: 'Passes that ended in a failure which no retry can help (Stalled).',
  labelNames: ['controller'] as const,
  registers,
})

export const reconcilePanics = new Counter({
  name: 'controller_runtime_reconcile_panics_total',
  help: 'Passes that failed for a reason nobody expected: a fault of this program.',
  labelNames: ['controller'] as const,
  registers,
})

export const reconcileSeconds = new Histogram({
  name: 'controller_runtime_reconcile_time_seconds',
  help: 'Length of a pass per controller.',
  labelNames: ['controller'] as const,
  buckets: [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 1.75,
    2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
  ],
  registers,
})

export const activeWorkers = new Gauge({
  name: 'controller_runtime_active_workers',
  help: 'Passes under way per controller.',
  labelNames: ['controller'] as const,
  registers,
})

export const maxConcurrent = new Gauge({
  name: 'controller_runtime_max_concurrent_reconciles',
  help: 'Passes that may be under way at once per controller.',
  labelNames: ['controller'] as const,
  registers,
})

export const queueDepth = new Gauge({
  name: 'workqueue_depth',
  help: 'Keys that wait for a worker.',
  labelNames: ['name'] as const,
  registers,
})

export const queueAdds = new Counter({
  name: 'workqueue_adds_total',
  help: 'Keys that entered the queue.',
  labelNames: ['name'] as const,
  registers,
})

export const queueRetries = new Counter({
  name: 'workqueue_retries_total',
  help: 'Keys that entered the queue again after a failure.',
  labelNames: ['name'] as const,
  registers,
})

/** Ten exponential buckets from 10 ms to 30 min, as Flux has them. */
const objectBuckets = Array.from({ length: 10 }, (_, i) => 0.01 * (1800 / 0.01) ** (i / 9))

export const objectSeconds = new Histogram({
  name: 'gotk_reconcile_duration_seconds',
  help: 'Length of a pass per object.',
  labelNames: ['kind', 'name', 'namespace'] as const,
  buckets: objectBuckets,
  registers,
})

export const leaderStatus = new Gauge({
  name: 'leader_election_master_status',
  help: '1 while this process holds the lease.',
  labelNames: ['name'] as const,
  registers,
})

export const apiRequests = new Counter({
  name: 'rest_client_requests_total',
  help: 'Requests to the API server by method and status code.',
  labelNames: ['method', 'code', 'host'] as const,
  registers,
})

export const watchRestarts = new Counter({
  name: 'openflux_informer_restarts_total',
  help: 'Watches opened anew by cause: end, error, silent, relist.',
  labelNames: ['kind', 'cause'] as const,
  registers,
})

export const secretWatches = new Gauge({
  name: 'openflux_secret_watches',
  help: 'Secrets that are watched because an object refers to them.',
  registers,
})

export const tokenCacheEvents = new Counter({
  name: 'gotk_token_cache_events_total',
  help: 'Tokens that an object needed: cache_hit where it was there, else cache_miss.',
  labelNames: ['event_type', 'kind', 'name', 'namespace', 'operation'] as const,
  registers,
})

export const tokenCacheRequests = new Counter({
  name: 'gotk_token_cache_requests_total',
  help: 'Tokens that were asked for at their issuer, by status: success or failure.',
  labelNames: ['status'] as const,
  registers,
})

export const tokenCacheItems = new Gauge({
  name: 'gotk_token_cached_items',
  help: 'Tokens that are kept.',
  registers,
})

export const tokenCacheEvictions = new Counter({
  name: 'gotk_token_cache_evictions_total',
  help: 'Tokens that made room for others.',
  registers,
})

export const artifactMemoryBytes = new Gauge({
  name: 'openflux_artifact_memory_bytes',
  help: 'Bytes of artifacts that are kept in memory to be served.',
  registers,
})

export const artifactMemoryLookups = new Counter({
  name: 'openflux_artifact_memory_lookups_total',
  help: 'How often an artifact was wanted from memory: hit, miss, or none where it is too large or all room is taken.',
  labelNames: ['result'] as const,
  registers,
})
