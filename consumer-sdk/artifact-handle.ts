import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { messageOf, ReconcileError } from '../controllers/runtime/errors.ts'
import { extractArchive, type ExtractLimits, type ExtractOptions } from './extract.ts'
import { downloadArtifact, type FetchLimits } from './fetch.ts'
import type { Extracted } from './folder-writer.ts'
import type { ResolvedArtifact } from './resolve.ts'

/** An Artifact whose bytes can be had. Nothing is downloaded before it is asked for, and then once. */
export interface ArtifactHandle extends ResolvedArtifact {
  /** The path of the downloaded tar.gz, whose digest has been checked. It is removed when the pass ends. */
  download(): Promise<string>
  /** Extracts it into a new or empty folder, all of it or nothing. See `extractArchive` for the errors. */
  extractTo(folder: string, options?: ExtractOptions): Promise<Extracted>
}

export interface HandleOptions {
  fetch: FetchLimits
  extract: ExtractLimits
}

/** Calls `work` with a handle on `artifact`; what was downloaded is removed afterwards, and what is still under way is ended. */
export async function withArtifact<R>(
  artifact: ResolvedArtifact,
  options: HandleOptions,
  signal: AbortSignal,
  work: (handle: ArtifactHandle) => Promise<R>,
): Promise<R> {
  const end = new AbortController()
  const bounded = AbortSignal.any([signal, end.signal])
  let folder: Promise<string> | undefined
  let file: Promise<string> | undefined
  const download = () => (file ??= fetchInto((folder ??= makeFolder()), artifact, options.fetch, bounded))
  const handle: ArtifactHandle = {
    ...artifact,
    download,
    extractTo: async (target, extractOptions = {}) =>
      extractArchive(await download(), target, options.extract, extractOptions, bounded),
  }
  try {
    return await work(handle)
  } finally {
    end.abort(new Error('the pass has ended'))
    await file?.catch(() => undefined) // whoever asked for it has heard of it
    const made = await folder?.catch(() => undefined)
    if (made) await rm(made, { recursive: true, force: true })
  }
}

/** Calls `work` with a new folder that is removed afterwards. */
export async function withTempDir<R>(prefix: string, work: (folder: string) => Promise<R>): Promise<R> {
  const folder = await mkdtemp(join(tmpdir(), prefix))
  try {
    return await work(folder)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function makeFolder(): Promise<string> {
  try {
    return await mkdtemp(join(tmpdir(), 'openflux-download-'))
  } catch (cause) {
    throw new ReconcileError('DownloadFailed', `cannot make a folder for the download: ${messageOf(cause)}`, { cause })
  }
}

async function fetchInto(
  folder: Promise<string>,
  artifact: ResolvedArtifact,
  limits: FetchLimits,
  signal: AbortSignal,
): Promise<string> {
  const file = join(await folder, 'artifact.tar.gz')
  await downloadArtifact(artifact, file, limits, signal)
  return file
}
