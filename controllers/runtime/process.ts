import type { Command } from 'commander'
import { makeCommand, type RuntimeFlags } from './flags.ts'
import { Manager, runUntilSignal } from './manager.ts'

/** One folder under `controllers/`, as processes start it. Several can share one process. */
export interface ControllerModule {
  /** The folder's name, by which `--controllers` selects it. */
  name: string
  /** Adds its own flags; those of RuntimeFlags are there. */
  addFlags(command: Command): void
  /** Adds its controllers to the manager. `flags` holds the values of all flags. Throws when it cannot start. */
  add(manager: Manager, flags: RuntimeFlags): Promise<void>
}

/** Parses the command line, then runs the controllers of `modules` until SIGTERM or SIGINT. A start that fails is logged and exits with 1. */
export async function runControllers(
  name: string,
  modules: readonly ControllerModule[],
  argv: readonly string[] = process.argv.slice(2),
): Promise<void> {
  const command = makeCommand(name, `Runs ${modules.map((module) => module.name).join(', ')} until it is told to stop.`)
  for (const module of modules) module.addFlags(command)
  command.parse([...argv], { from: 'user' })
  const flags = command.opts<RuntimeFlags>()
  const manager = new Manager(flags, name)
  await runUntilSignal(manager.log, async (signal) => {
    for (const module of modules) await module.add(manager, flags)
    await manager.run(signal)
  })
}
