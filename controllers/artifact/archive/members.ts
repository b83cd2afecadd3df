import { hash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import type { PlannedFile } from './archive-plan.ts'
import type { Pace } from './pace.ts'
import { isExecutable, sharedFolders } from './tar-header.ts'

/** A larger file has members of its own. */
export const largeFileBytes = 128 * 1024
/** How much content of a large file goes into one member. */
export const segmentBytes = 2 ** 20

/** Of tar, for small files. Half as much would make archives of source code 9 % larger than one member instead of 5 %; twice as much, 2.5 %, at twice the work for each change. */
const meanBytes = 64 * 1024
const minBytes = 16 * 1024
const maxBytes = 128 * 1024

/** What one gzip member of an archive holds: the files from `first` up to `end`, or one segment of one large file. */
export interface Member {
  first: number
  end: number
  segment: number
  /** Of the file; 1 unless it is large. */
  segments: number
  /** Equal only for equal tar bytes; undefined where nothing tells that they are equal. */
  key: string | undefined
}

/**
 * Divides the files into members by their paths and sizes alone. The bounds follow from the files nearby, not from how many came before, so that after a file
 * that has been added, removed or resized they are soon the same again.
 */
export async function planMembers(files: readonly PlannedFile[], pace: Pace): Promise<Member[]> {
  const members: Member[] = []
  let first = 0
  let bytes = 0
  const close = (end: number): void => {
    if (end > first) members.push({ first, end, segment: 0, segments: 1, key: keyOf(files, first, end) })
    first = end
    bytes = 0
  }
  for (const [at, file] of files.entries()) {
    await pace()
    if (file.sizeBytes > largeFileBytes) {
      close(at)
      members.push(...segmentsOf(files, at))
      first = at + 1
      continue
    }
    const fileBytes = 512 + file.sizeBytes
    bytes += fileBytes
    if (bytes >= maxBytes || (bytes >= minBytes && isBound(file.path, fileBytes))) close(at + 1)
  }
  close(files.length)
  return members
}

/** Chosen by the path, the likelier the larger the file is, so that members have their mean size whatever the files have. */
function isBound(path: string, fileBytes: number): boolean {
  return crc32(path) / 2 ** 32 < fileBytes / (meanBytes - minBytes)
}

function segmentsOf(files: readonly PlannedFile[], at: number): Member[] {
  const segments = Math.ceil(files[at]!.sizeBytes / segmentBytes)
  const key = keyOf(files, at, at + 1)
  return Array.from({ length: segments }, (_, segment) => ({
    first: at,
    end: at + 1,
    segment,
    segments,
    key: key && digestOf(`${key}:${segment}`),
  }))
}

/** Names all that the tar bytes follow from, without making them: what `headersOf` looks at, and the content's id. */
function keyOf(files: readonly PlannedFile[], first: number, end: number): string | undefined {
  const parts: (string | number | boolean | undefined)[] = []
  let previous = files[first - 1]?.path ?? ''
  for (const { path, mode, sizeBytes, target, contentId } of files.slice(first, end)) {
    if (target === undefined && contentId === undefined) return undefined
    const content = target === undefined ? ['file', contentId] : ['link', target]
    parts.push(sharedFolders(previous, path), path, isExecutable(mode), sizeBytes, ...content)
    previous = path
  }
  return digestOf(JSON.stringify(parts))
}

/** 128 bits are enough and half a million may be in memory. */
function digestOf(text: string): string {
  return hash('sha256', text, 'buffer').toString('latin1', 0, 16)
}
