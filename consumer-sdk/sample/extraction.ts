// Extracts the artifact of whatever an Extraction refers to into <root>/<namespace>/<name>, and again for each new one.
import { join } from 'node:path'
import { runConsumer, type Consumer, type ConsumerObject, type Kind, type SourceRef } from '../index.ts'

export interface Extraction extends ConsumerObject {
  spec: ConsumerObject['spec'] & {
    sourceRef: SourceRef
    /** Only this folder of the artifact. */
    folder?: string
  }
  status?: ConsumerObject['status'] & { path?: string; files?: number }
}

export const ExtractionKind: Kind<Extraction> = {
  group: 'samples.openflux.example',
  version: 'v1alpha1',
  kind: 'Extraction',
  plural: 'extractions',
}

/** A consumer that extracts below the folder `root`. */
export function makeExtraction(root: string): Consumer<Extraction> {
  return {
    kind: ExtractionKind,

    sourceRef: (obj) => obj.spec.sourceRef,

    async reconcile(obj, artifact) {
      const path = join(root, obj.metadata.namespace ?? '', obj.metadata.name)
      const { files } = await artifact.extractTo(path, { folder: obj.spec.folder, replace: true })
      obj.status = { ...obj.status, path, files }
      return { message: `extracted ${files} files of revision ${artifact.revision}` }
    },
  }
}

if (import.meta.main) await runConsumer('extraction', makeExtraction(process.env.EXTRACTION_ROOT ?? 'extractions'))
