// What `npm run bench -- NAME [--peer 'COMMAND'] [flags]` runs: one benchmark, one JSON object on standard output, all else on standard error.
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { Command, Option } from 'commander'
import { machine, type Report } from './report.ts'

/** What every benchmark is told. */
export interface BenchOptions {
  /** A command line for the shell: the same work is then done by that program too. */
  peer?: string
}

/** What `<name>.ts` in this folder exports to be a benchmark. */
export interface Benchmark {
  /** Flags of its own, given to `run` under their names in camel case. */
  flags?: readonly Option[]
  run(options: BenchOptions): Promise<Report>
}

async function load(name: string | undefined): Promise<Benchmark> {
  const files = (await readdir(import.meta.dirname)).filter((file) => /^[a-z-]+\.ts$/.test(file) && file !== 'main.ts')
  if (files.includes(`${name}.ts`)) {
    const module: unknown = await import(join(import.meta.dirname, `${name}.ts`))
    if (isBenchmark(module)) return module
  }
  throw new Error(`no benchmark '${name ?? ''}'; README.md in e2e/bench lists them`)
}

function isBenchmark(module: unknown): module is Benchmark {
  return typeof module === 'object' && module !== null && 'run' in module
}

const [name, ...argv] = process.argv.slice(2)
const benchmark = await load(name)
const command = new Command(`npm run bench -- ${name}`)
  .addOption(new Option('--peer <command>', 'command line of another program that does the same'))
  .allowExcessArguments(false)
for (const option of benchmark.flags ?? []) command.addOption(option)
const options = command.parse(argv, { from: 'user' }).opts<BenchOptions>()
const measuredOn = await machine()
const { versions, setting, rows } = await benchmark.run(options)
const report = {
  benchmark: name,
  versions: { node: process.version, ...versions },
  machine: measuredOn,
  setting,
  rows,
  targetsMissed: rows.flatMap((row) =>
    row.ratios.filter(({ met }) => met === false).map((missed) => `${row.name} (${row.fileSystem}): ${missed.name}`),
  ),
}
process.stdout.write(`${JSON.stringify(report, undefined, 2)}\n`)
