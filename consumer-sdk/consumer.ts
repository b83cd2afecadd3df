import { artifactInformerOptions } from '../controllers/artifact/artifact.ts'
import { ArtifactKind } from '../controllers/artifact/types.ts'
import type { Controller } from '../controllers/runtime/controller.ts'
import type { Manager } from '../controllers/runtime/manager.ts'
import { type ControllerModule, runControllers } from '../controllers/runtime/process.ts'
import { bySourceRef, followArtifacts, sourceRefIndex } from './artifact-watch.ts'
import { addConsumerFlags, type ConsumerFlags, defaultConsumerFlags, extractLimits, fetchLimits } from './flags.ts'
import { ConsumerReconciler } from './reconciler.ts'
import type { Consumer, ConsumerObject } from './types.ts'

/**
 * Adds a consumer's controller to a manager, which may run others as well: one watch on the consumer's kind, and one on Artifacts that all of the process
 * share. Nothing runs before the manager does.
 */
export function makeConsumerController<T extends ConsumerObject>(
  manager: Manager,
  consumer: Consumer<T>,
  flags: ConsumerFlags = defaultConsumerFlags(),
): Controller<T> {
  const { namespaces, flags: runtime } = manager
  const artifacts = manager.informer(ArtifactKind, { ...artifactInformerOptions, selection: namespaces })
  const objects = manager.informer<T>(consumer.kind, {
    selection: { ...namespaces, labelSelector: runtime.watchLabelSelector || undefined },
    indexes: { [sourceRefIndex]: bySourceRef<T>((obj) => consumer.sourceRef(obj)) },
  })
  const reconciler = new ConsumerReconciler(consumer, {
    objects,
    artifacts,
    fetch: fetchLimits(flags),
    extract: extractLimits(flags),
    noCrossNamespaceRefs: runtime.noCrossNamespaceRefs,
    intervalJitterPercentage: runtime.intervalJitterPercentage,
  })
  const { controller } = manager.add<T>({
    kind: consumer.kind,
    component: consumer.component ?? `openflux-${consumer.kind.kind.toLowerCase()}`,
    informer: objects,
    reconcile: (key, ctx) => reconciler.reconcile(key, ctx),
    beforeTerm: async () => {
      reconciler.reset()
      return []
    },
  })
  followArtifacts(artifacts, objects, (key) => controller.enqueue(key))
  return controller
}

/** Makes a consumer startable beside controllers of sources and other consumers. */
export function makeConsumerModule<T extends ConsumerObject>(name: string, consumer: Consumer<T>): ControllerModule {
  return {
    name,
    addFlags: addConsumerFlags,
    async add(manager, flags) {
      // The command has parsed ours as well: they are among the runtime's.
      makeConsumerController(manager, consumer, { ...defaultConsumerFlags(), ...flags })
    },
  }
}

export interface RunOptions {
  /** Command line without program and script. Defaults to that of the process. */
  argv?: readonly string[]
}

/** Runs one consumer as a process of its own until SIGTERM or SIGINT. `name` is shown in `--help` and to the API server. */
export function runConsumer<T extends ConsumerObject>(
  name: string,
  consumer: Consumer<T>,
  options: RunOptions = {},
): Promise<void> {
  return runControllers(name, [makeConsumerModule(name, consumer)], options.argv)
}
