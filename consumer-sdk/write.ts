import type { FileHandle } from 'node:fs/promises'

/** Writes all of `chunk` at the file's position; one write call may take less than it was given. */
export async function writeAll(handle: FileHandle, chunk: Buffer): Promise<void> {
  for (let rest = chunk; rest.length > 0;) {
    const { bytesWritten } = await handle.write(rest)
    rest = rest.subarray(bytesWritten)
  }
}
