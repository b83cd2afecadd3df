import { type ControllerModule, runControllers } from './runtime/process.ts'

/** The folders that hold controllers. Loaded only when asked for: each costs memory. */
const folders: Record<string, () => Promise<ControllerModule>> = {
  git: async () => (await import('./git/index.ts')).git,
}

const option = '--controllers'

/** Takes `--controllers=git,http` (or `--controllers git,http`) out of the command line; all of them without it. */
function splitArguments(argv: readonly string[]): { names: string[]; rest: string[] } {
  const rest: string[] = []
  let list = Object.keys(folders).join(',')
  for (let i = 0; i < argv.length; i++) {
    if (argv[i] === option) list = argv[++i] ?? ''
    else if (argv[i]!.startsWith(`${option}=`)) list = argv[i]!.slice(option.length + 1)
    else rest.push(argv[i]!)
  }
  return {
    names: list
      .split(',')
      .map((name) => name.trim())
      .filter(Boolean),
    rest,
  }
}

const { names, rest } = splitArguments(process.argv.slice(2))
const unknown = names.find((name) => !Object.hasOwn(folders, name))
if (unknown !== undefined || names.length === 0) {
  console.error(
    `${option}: ${unknown ? `no controller '${unknown}'` : 'none named'}; there are ${Object.keys(folders).join(', ')}`,
  )
  process.exit(2)
}
await runControllers('openflux', await Promise.all(names.map((name) => folders[name]!())), rest)
