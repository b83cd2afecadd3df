// What `npm test` runs: types, lint, unit, cluster and e2e tests, and a closing line with the sum.
// `npm test -- unit cluster` runs only those steps; what follows a `--` goes to mocha: `npm test -- e2e -- --grep replicas`.
import { spawn } from 'node:child_process'

interface Counts {
  passed: number
  failed: number
}

interface Step {
  name: string
  command: string
  /** Mocha says how many tests passed; any other command counts as one. */
  mocha?: boolean
}

const mocha = 'mocha --no-color --exit --require ./e2e/shared-control-plane.ts'

/** One stage after the other; the steps of a stage run at the same time, since those with a cluster mostly wait for it. */
const stages: Step[][] = [
  [{ name: 'types', command: 'tsc' }],
  [{ name: 'lint', command: 'npm run --silent lint' }],
  // Before the tests with their time limits: the first run builds or downloads it.
  [{ name: 'control-plane', command: 'node e2e/control-plane/prepare.ts' }],
  [
    {
      name: 'unit',
      command: `mocha --no-color --exit --parallel --jobs 2 --ignore '**/*.cluster.test.ts' '{controllers,consumer-sdk,crds,e2e}/**/*.test.ts'`,
      mocha: true,
    },
  ],
  [
    {
      name: 'cluster',
      command: `${mocha} --timeout 120000 '{controllers,consumer-sdk,crds,deploy,e2e}/**/*.cluster.test.ts'`,
      mocha: true,
    },
    { name: 'e2e', command: `${mocha} --timeout 300000 'e2e/*.e2e.ts'`, mocha: true },
  ],
]

/** Runs a command, with its output shown as it comes where `live`, and resolves with its exit code and what it printed. */
function run(command: string, live: boolean): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    // The commands are the ones above; the shell is for npm's PATH and for the quotes around patterns.
    const child = spawn(command, { shell: true, stdio: ['ignore', 'pipe', live ? 'inherit' : 'pipe'] })
    let output = ''
    const take = (chunk: Buffer) => {
      if (live) process.stdout.write(chunk)
      output += chunk.toString()
    }
    child.stdout?.on('data', take)
    child.stderr?.on('data', take)
    child.on('close', (code) => resolve({ code: code ?? 1, output }))
  })
}

function countsOf(step: Step, code: number, output: string): Counts {
  if (!step.mocha) return code === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 }
  const count = (word: string) => Number(new RegExp(`^\\s+(\\d+) ${word}`, 'm').exec(output)?.[1] ?? 0)
  const passed = count('passing')
  // A test left out has shown nothing, and a run that tested nothing, or broke down, is no success.
  const failed = count('failing') + count('pending')
  return { passed, failed: failed || (code === 0 && passed > 0 ? 0 : 1) }
}

const separator = process.argv.indexOf('--')
const chosen = process.argv.slice(2, separator < 0 ? undefined : separator)
const extra = separator < 0 ? [] : process.argv.slice(separator + 1)
const names = stages.flat().map(({ name }) => name)
const unknown = chosen.find((name) => !names.includes(name))
if (unknown) throw new Error(`no step '${unknown}'; there are ${names.join(', ')}`)

/** Runs one step; one that runs beside others is shown as a whole when it has ended. */
async function runStep(step: Step, live: boolean): Promise<Counts> {
  console.log(`\n== ${step.name}`)
  const startedAt = performance.now()
  const suffix = step.mocha ? extra.map((word) => ` '${word.replaceAll("'", `'\\''`)}'`).join('') : ''
  const { code, output } = await run(step.command + suffix, live)
  if (!live) process.stdout.write(`\n== ${step.name}\n${output}`)
  const counts = countsOf(step, code, output)
  const seconds = Math.round((performance.now() - startedAt) / 1000)
  console.log(`== ${step.name}: ${counts.failed ? 'failed' : 'ok'} after ${seconds} s`)
  return counts
}

const sum: Counts = { passed: 0, failed: 0 }
for (const stage of stages) {
  const steps = stage.filter(({ name }) => chosen.length === 0 || chosen.includes(name))
  for (const { passed, failed } of await Promise.all(steps.map((step) => runStep(step, steps.length === 1)))) {
    sum.passed += passed
    sum.failed += failed
  }
}
console.log(`\n${sum.passed} passed, ${sum.failed} failed`)
process.exitCode = sum.failed ? 1 : 0
