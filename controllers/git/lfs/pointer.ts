/** What a pointer file (Git LFS specification, version 1) stands for. */
export interface Pointer {
  /** SHA-256 of the content, in hexadecimal. */
  oid: string
  sizeBytes: number
}

/** Pointers have at least so many bytes, and by the specification fewer than the limit: nothing else needs to be read to know that it is none. */
export const minPointerBytes = 125
export const pointerLimitBytes = 1024

const form =
  /^version https:\/\/git-lfs\.github\.com\/spec\/v1\n((?:ext-\d-[^ \n]+ sha256:[0-9a-f]{64}\n)*)oid sha256:([0-9a-f]{64})\nsize (0|[1-9]\d{0,15})\n?$/

/**
 * Undefined where the content is not a pointer, to the letter: what only looks like one is a file as any other. Throws an Error for a pointer whose content a
 * program of the user's would have to alter (`ext-…`).
 */
export function parsePointer(content: Buffer): Pointer | undefined {
  if (content.length < minPointerBytes || content.length >= pointerLimitBytes) return undefined
  const [, extensions, oid, size] = form.exec(content.toString('latin1')) ?? []
  const sizeBytes = Number(size)
  if (!oid || !Number.isSafeInteger(sizeBytes)) return undefined
  if (extensions) throw new Error('the LFS pointer names extensions, which are not supported')
  return { oid, sizeBytes }
}
