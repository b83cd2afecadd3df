import { execFile } from 'node:child_process'
import { access, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Option } from 'commander'
import { openStorage, type StoredArtifact } from '../../controllers/artifact/index.ts'
import { entriesOf, randomBytes } from '../../controllers/artifact/test-support.ts'
import { integerArg } from '../../controllers/runtime/flags.ts'
import { cached, cacheFolder, note } from '../tools/cache.ts'
import { goBuild, goModuleHash } from '../tools/go.ts'
import { temporaryFolder } from '../tools/temporary.ts'
import type { BenchOptions } from './main.ts'
import { watchTree } from './process-tree.ts'
import { fileSystemOf, median, ratio, type Figures, type Report, type Row } from './report.ts'
import { onCores, startArms, type Arm, type Cores } from './serve/arms.ts'

interface ServeOptions extends BenchOptions {
  rounds: number
  durationMs: number
  connections: number
  storage: 'disk' | 'tmpfs' | 'both'
  cores: Cores | 'both'
}

/** One way to measure. */
interface Setup {
  folder: string
  helper: string
  cores: Cores
  options: ServeOptions
}

/** Flags of `npm run bench -- serve`. */
export const flags = [
  new Option('--rounds <n>', 'how often every server has its turn').argParser(integerArg(1, 100)).default(5),
  new Option('--duration-ms <n>', 'how long a turn is').argParser(integerArg(10, 60_000)).default(1000),
  new Option('--connections <n>', 'kept connections of the load').argParser(integerArg(1, 1000)).default(8),
  new Option('--storage <kind>', 'where the files are').choices(['disk', 'tmpfs', 'both']).default('disk'),
  new Option('--cores <how>', 'whether server and load have a core each')
    .choices(['apart', 'shared', 'both'])
    .default('both'),
]

/** What an archive weighs, and how many requests of `http.FileServer` on one core ours must answer for one of it. */
const sizes = [
  { name: '4 kB', bytes: 4_000, atLeast: 1.4 },
  { name: '300 kB', bytes: 300_000, atLeast: 1 },
  { name: '14 MB', bytes: 14_000_000, atLeast: 1.4 },
]

/** What the load prints. */
interface LoadResult {
  requests: number
  requestsPerSecond: number
  bytesPerSecond: number
  p50Us: number
  p99Us: number
}

interface Turn extends LoadResult {
  cpuUsPerRequest: number
  peakRssBytes: number
  lagP99Ms?: number
  lagMaxMs?: number
}

/** Artifacts of three sizes, served by our file server, by Go's `http.FileServer` and by bare sendfile(2). */
export async function run(given: BenchOptions): Promise<Report> {
  const options = given as ServeOptions
  const helper = await buildHelper()
  const rows: Row[] = []
  for (const kind of options.storage === 'both' ? ['disk', 'tmpfs'] : [options.storage]) {
    const folder = await makeFolder(kind)
    if (folder === undefined) continue
    try {
      const artifacts = await fill(folder)
      for (const cores of options.cores === 'both' ? (['apart', 'shared'] as const) : [options.cores])
        rows.push(...(await runOn({ folder, helper, cores, options }, artifacts)))
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  }
  const go = await promisify(execFile)('go', ['env', 'GOVERSION'])
  return { versions: { go: go.stdout.trim() }, setting: { ...options }, rows }
}

/** The Go program in `serve/go`, built once. */
async function buildHelper(): Promise<string> {
  const module = join(import.meta.dirname, 'serve', 'go')
  const hash = await goModuleHash(module)
  const folder = await cached(cacheFolder('bench-serve', `${hash}-${process.platform}-${process.arch}`), (temporary) =>
    goBuild('the servers to compare with', { module, output: join(temporary, 'bench-serve') }),
  )
  return join(folder, 'bench-serve')
}

async function makeFolder(kind: string): Promise<string | undefined> {
  if (kind === 'disk') return temporaryFolder()
  const shared = '/dev/shm'
  return access(shared).then(
    () => mkdtemp(join(shared, 'openflux-bench-')),
    () => {
      note(`there is no ${shared}: nothing measured on tmpfs`)
      return undefined
    },
  )
}

async function runOn(setup: Setup, artifacts: ReadonlyMap<string, StoredArtifact>): Promise<Row[]> {
  const { folder, helper, cores, options } = setup
  await using stack = new AsyncDisposableStack()
  const arms = await startArms(folder, helper, cores, options.peer)
  for (const arm of arms) stack.use(arm)
  const rows: Row[] = []
  for (const { name, atLeast } of sizes) {
    const turns = await takeTurns(arms, artifacts.get(name)!, setup)
    const arm = (each: string) => median(turns.get(each)!.map(({ requestsPerSecond }) => requestsPerSecond))
    const others = [...turns.keys()].filter((each) => each !== 'ours' && each !== 'go')
    rows.push({
      name: `serve ${name}, cores ${cores}`,
      fileSystem: await fileSystemOf(folder),
      arms: Object.fromEntries([...turns].map(([each, of]) => [each, figuresOf(of)])),
      ratios: [
        ratio('requests per second, ours / go', arm('ours') / arm('go'), { atLeast }),
        ...others.map((other) => ratio(`requests per second, ours / ${other}`, arm('ours') / arm(other))),
      ],
      compared: 'sha256 of the first and last body of every connection, the length of all',
    })
  }
  return rows
}

/** One artifact of every size, of bytes that cannot be compressed, stored as controllers do. */
async function fill(folder: string): Promise<Map<string, StoredArtifact>> {
  const storage = await openStorage({ root: folder })
  const artifacts = new Map<string, StoredArtifact>()
  for (const { name, bytes } of sizes) {
    const entries = entriesOf({ content: randomBytes(1, bytes) })
    const object = name.replace(' ', '').toLowerCase()
    const { artifact } = await storage.store(`gitrepository/bench/${object}`, 'r', entries, { fileName: 'r' })
    artifacts.set(name, artifact)
  }
  return artifacts
}

/** A/B/A/B: every server once in each round, so that what slows the machine down for a while slows all of them. */
async function takeTurns(
  arms: readonly Arm[],
  artifact: StoredArtifact,
  setup: Setup,
): Promise<ReadonlyMap<string, Turn[]>> {
  const { rounds } = setup.options
  const turns = new Map<string, Turn[]>(arms.map(({ name }) => [name, []]))
  // Two turns to warm up: a compiler that learns from what runs needs them, and a server runs for months.
  for (let turn = 0; turn < 2; turn++) for (const arm of arms) await load(arm, artifact, setup)
  for (let round = 0; round < rounds; round++) {
    for (const arm of arms) turns.get(arm.name)!.push(await takeTurn(arm, artifact, setup))
    note(`cores ${setup.cores}, ${artifact.size} bytes: round ${round + 1} of ${rounds}`)
  }
  return turns
}

async function takeTurn(arm: Arm, artifact: StoredArtifact, setup: Setup): Promise<Turn> {
  await arm.lag()
  const watch = watchTree(arm.process.pid)
  const result = await load(arm, artifact, setup)
  const { cpuSeconds, peakRssBytes } = watch.stop()
  const lag = await arm.lag()
  return {
    ...result,
    cpuUsPerRequest: (cpuSeconds * 1e6) / result.requests,
    peakRssBytes,
    ...(lag && { lagP99Ms: lag.p99Ms, lagMaxMs: lag.maxMs }),
  }
}

/** Throws when an answer is not what is stored. */
async function load(arm: Arm, artifact: StoredArtifact, { helper, cores, options }: Setup): Promise<LoadResult> {
  const [command, args] = await onCores(
    cores,
    'load',
    helper,
    'load',
    `-address=127.0.0.1:${arm.port}`,
    `-path=/${artifact.path}`,
    `-sha256=${artifact.digest.replace('sha256:', '')}`,
    `-connections=${options.connections}`,
    `-duration=${options.durationMs}ms`,
  )
  try {
    const { stdout } = await promisify(execFile)(command, args)
    return JSON.parse(stdout) as LoadResult
  } catch (err) {
    throw new Error(`the load on ${arm.name} failed; its log:\n${arm.process.logs(20)}`, { cause: err })
  }
}

function figuresOf(turns: readonly Turn[]): Figures {
  const all = (key: keyof Turn) => turns.map((turn) => turn[key]).filter((value) => value !== undefined)
  const rps = all('requestsPerSecond')
  const medians = (
    ['bytesPerSecond', 'p50Us', 'p99Us', 'cpuUsPerRequest', 'peakRssBytes', 'lagP99Ms', 'lagMaxMs'] as const
  )
    .map((key) => [key, Math.round(median(all(key)) * 100) / 100] as const)
    .filter(([, value]) => !Number.isNaN(value))
  return {
    requestsPerSecond: Math.round(median(rps)),
    requestsPerSecondMinMax: [Math.min(...rps), Math.max(...rps)].map(Math.round),
    ...Object.fromEntries(medians),
  }
}
