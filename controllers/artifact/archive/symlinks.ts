import { isUtf8 } from 'node:buffer'
import type { PlannedFile } from './archive-plan.ts'
import { readBodies } from './bodies.ts'
import { archiveError } from './entry-path.ts'
import type { Pace } from './pace.ts'

/** PATH_MAX and MAXSYMLINKS of Linux: what is longer or winds on further leads nowhere there either. */
const maxTargetBytes = 4096
const maxFollowed = 40
/** Names looked up for all links of a source; ten thousand links of ten components take a hundredth of it. */
const maxSteps = 10_000_000
/** All targets are in memory at once. */
const maxTotalTargetBytes = 64 * 2 ** 20

/** Reads the targets of links, by path; those that could lead nowhere on any system are left out. */
export async function readTargets(
  links: readonly PlannedFile[],
  signal: AbortSignal | undefined,
): Promise<Map<string, string>> {
  const readable = links.filter(({ sizeBytes }) => sizeBytes > 0 && sizeBytes <= maxTargetBytes)
  if (readable.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) > maxTotalTargetBytes) {
    throw archiveError(`the symbolic links have targets of more than ${maxTotalTargetBytes} bytes together`)
  }
  const targets = new Map<string, string>()
  for await (const { file, content } of readBodies(readable, signal)) {
    if (!Buffer.isBuffer(content) || !isUtf8(content)) continue
    const target = content.toString()
    // As in paths, see `checkEntryPath`.
    if (!target.startsWith('/') && !/[\\\0\n]/.test(target)) targets.set(file.path, target)
  }
  return targets
}

/**
 * The links that end at a file or folder of the archive which these files and the kept links themselves make up: the largest such set, whatever the order.
 * Throws ArchiveOperationFailed where it would take unreasonably long to find.
 */
export async function keepableLinks(
  files: readonly PlannedFile[],
  targets: Map<string, string>,
  pace: Pace,
): Promise<Map<string, string>> {
  const filePaths = new Set<string>()
  const solidFolders = new Set<string>([''])
  for (const { path } of files) {
    await pace()
    filePaths.add(path)
    addParents(solidFolders, path)
  }
  const budget = { steps: maxSteps }
  let links = targets
  for (;;) {
    // A folder may be there for the sake of its links alone, and go with them.
    const linkFolders = new Set<string>()
    for (const path of links.keys()) {
      await pace()
      budget.steps -= addParents(linkFolders, path)
    }
    const isFolder = (path: string): boolean => solidFolders.has(path) || linkFolders.has(path)
    const kept = new Map<string, string>()
    for (const [path, target] of links) {
      await pace()
      if (endsInside({ filePaths, isFolder, links }, path, target, budget)) kept.set(path, target)
    }
    if (kept.size === links.size) return kept
    links = kept
  }
}

interface Tree {
  filePaths: ReadonlySet<string>
  isFolder: (path: string) => boolean
  links: ReadonlyMap<string, string>
}

/** Follows a link name by name, as path_resolution(7) says that the kernel does, with the top of the archive as the end of the world. */
function endsInside(tree: Tree, path: string, target: string, budget: { steps: number }): boolean {
  const names = target.split('/').reverse()
  let folder = parentOf(path)
  for (let followed = 1; names.length > 0;) {
    if (--budget.steps < 0) throw archiveError(`the symbolic links take more than ${maxSteps} steps to follow`)
    const name = names.pop()!
    if (name === '' || name === '.') continue
    if (name === '..') {
      if (folder === '') return false
      folder = parentOf(folder)
      continue
    }
    const found = folder === '' ? name : `${folder}/${name}`
    const next = tree.links.get(found)
    if (next !== undefined) {
      if (++followed > maxFollowed) return false
      names.push(...next.split('/').reverse())
    } else if (tree.isFolder(found)) folder = found
    else return names.length === 0 && tree.filePaths.has(found)
  }
  return true
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(path.lastIndexOf('/'), 0))
}

/** Adds the folders above a path; gives how many were new. */
function addParents(folders: Set<string>, path: string): number {
  let added = 0
  for (let folder = parentOf(path); folder !== '' && !folders.has(folder); folder = parentOf(folder)) {
    folders.add(folder)
    added++
  }
  return added
}
