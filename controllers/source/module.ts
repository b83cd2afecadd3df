import type { Command } from 'commander'
import type { RuntimeFlags } from '../runtime/flags.ts'
import type { Manager } from '../runtime/manager.ts'
import type { ControllerModule } from '../runtime/process.ts'
import { addStorageFlags, type StorageFlags } from './flags.ts'
import { SourceHost } from './host.ts'

/** Everything a source kind needs to run as a controller. */
export interface SourceModuleOptions<F> {
  /** The folder's name. */
  name: string
  /** Adds the kind's own flags, whose values `addSources` gets. */
  addFlags?(command: Command): void
  /** Adds the kind's sources to the host. Throws when it cannot start. */
  addSources(host: SourceHost, flags: F & StorageFlags & RuntimeFlags, manager: Manager): Promise<void>
}

const hosts: WeakMap<Manager, Promise<SourceHost>> = new WeakMap()

/** One storage and one file server per process, whatever the number of kinds. */
function hostOf(manager: Manager, flags: StorageFlags): Promise<SourceHost> {
  const known = hosts.get(manager) ?? SourceHost.open(manager, flags)
  hosts.set(manager, known)
  return known
}

/** Makes source kinds startable, alone or beside others. */
export function makeSourceModule<F>(options: SourceModuleOptions<F>): ControllerModule {
  return {
    name: options.name,
    addFlags(command) {
      addStorageFlags(command)
      options.addFlags?.(command)
    },
    async add(manager, flags) {
      const all = flags as F & StorageFlags & RuntimeFlags
      await options.addSources(await hostOf(manager, all), all, manager)
    },
  }
}
