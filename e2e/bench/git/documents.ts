/** A source of numbers from 0 to 1 (exclusive) that a seed determines: mulberry32, the same on every machine. */
export function makeRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

const services =
  'payments orders checkout search catalog identity billing shipping inventory reviews media audit'.split(' ')
const roles = 'api worker gateway cron migrator proxy cache exporter'.split(' ')
const stages = 'base development staging production'.split(' ')
const settings = 'TIMEOUT RETRIES ENDPOINT REGION POOL_SIZE LOG_LEVEL FEATURE BUCKET QUEUE TOPIC'.split(' ')

/** Kubernetes manifests of about `bytes` bytes that a gzip shrinks about as much as those that people write. */
export function manifests(random: () => number, bytes: number): string {
  const documents: string[] = []
  for (let length = 0; length < bytes; length += documents.at(-1)!.length + 4)
    documents.push(random() < 0.55 ? workload(random) : configuration(random))
  return documents.join('---\n')
}

/** Where the `n`-th file of a repository is. */
export function manifestPath(random: () => number, n: number): string {
  const team = `team-${String(Math.floor(random() * 40)).padStart(2, '0')}`
  return `apps/${team}/${pick(random, services)}-${pick(random, roles)}/${pick(random, stages)}/manifest-${n}.yaml`
}

function workload(random: () => number): string {
  const name = nameOf(random)
  const image = `registry.example.com/${name.split('-')[0]}/${name}@sha256:${hex(random, 64)}`
  const variables = Array.from({ length: 2 + Math.floor(random() * 8) }, () => variable(random)).join('')
  return `apiVersion: apps/v1
kind: Deployment
metadata:
  name: ${name}
  namespace: team-${Math.floor(random() * 40)}
  labels:
    app.kubernetes.io/name: ${name}
    app.kubernetes.io/part-of: ${pick(random, services)}
    app.kubernetes.io/managed-by: flux
spec:
  replicas: ${1 + Math.floor(random() * 9)}
  selector:
    matchLabels:
      app.kubernetes.io/name: ${name}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: ${name}
      annotations:
        checksum/config: ${hex(random, 64)}
    spec:
      serviceAccountName: ${name}
      containers:
        - name: ${name.split('-')[1]}
          image: ${image}
          ports:
            - name: http
              containerPort: ${8000 + Math.floor(random() * 2000)}
          env:
${variables}          resources:
            requests:
              cpu: ${50 + 50 * Math.floor(random() * 20)}m
              memory: ${64 * (1 + Math.floor(random() * 16))}Mi
            limits:
              memory: ${64 * (16 + Math.floor(random() * 16))}Mi
          readinessProbe:
            httpGet:
              path: /healthz
              port: http
            periodSeconds: ${5 + Math.floor(random() * 25)}
`
}

function configuration(random: () => number): string {
  const name = nameOf(random)
  const lines = Array.from(
    { length: 4 + Math.floor(random() * 16) },
    () => `  ${pick(random, settings).toLowerCase()}_${Math.floor(random() * 100)}: "${word(random)}"\n`,
  ).join('')
  return `apiVersion: v1
kind: ConfigMap
metadata:
  name: ${name}
  namespace: team-${Math.floor(random() * 40)}
  labels:
    app.kubernetes.io/name: ${name}
data:
${lines}`
}

function variable(random: () => number): string {
  const name = `${pick(random, services).toUpperCase()}_${pick(random, settings)}`
  return `            - name: ${name}\n              value: "${word(random)}"\n`
}

function nameOf(random: () => number): string {
  return `${pick(random, services)}-${pick(random, roles)}-${hex(random, 4)}`
}

function word(random: () => number): string {
  const kind = random()
  if (kind < 0.4) return String(Math.floor(random() * 10_000))
  if (kind < 0.7) return `https://${nameOf(random)}.internal.example.com/v${Math.floor(random() * 4)}`
  return pick(random, settings).toLowerCase()
}

function hex(random: () => number, digits: number): string {
  let text = ''
  while (text.length < digits)
    text += Math.floor(random() * 2 ** 32)
      .toString(16)
      .padStart(8, '0')
  return text.slice(0, digits)
}

function pick(random: () => number, from: readonly string[]): string {
  return from[Math.floor(random() * from.length)]!
}
