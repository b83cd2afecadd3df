import { link, lstat, mkdir, open, rename, rm, type FileHandle } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { Writable } from 'node:stream'
import { ReconcileError } from '../../runtime/errors.ts'

/** The `code` of a system error, else ''. */
export function codeOf(err: unknown): string {
  const code = err instanceof Error && 'code' in err ? err.code : undefined
  return typeof code === 'string' ? code : ''
}

/** Passes errors of ours on; a system error becomes one with this reason that names the call's failure but no path. */
export function storageError(err: unknown, reason: string, what: string): Error {
  if (!(err instanceof Error)) return new Error(String(err))
  if (err instanceof ReconcileError || !codeOf(err)) return err
  const [failure = ''] = err.message.split(',', 1)
  return new ReconcileError(reason, `${what}: ${failure}`, { cause: err })
}

/** The result of the work; its system errors become errors with this reason. */
export async function failingAs<T>(reason: string, what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (err) {
    throw storageError(err, reason, what)
  }
}

/** Writes to an open file from where it is, and leaves it open: `handle.createWriteStream` ends only when it may close the handle. */
export function writerOf(handle: FileHandle): Writable {
  return new Writable({
    highWaterMark: 2 * 2 ** 20,
    write: (chunk: Buffer, _encoding, done) => {
      handle.writeFile(chunk).then(() => done(), done)
    },
  })
}

/** Resolves once the names in a folder survive a loss of power. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } catch (err) {
    // Some network file systems have no such call and make names durable at once.
    if (!['EINVAL', 'ENOTSUP', 'EPERM'].includes(codeOf(err))) throw err
  } finally {
    await handle.close()
  }
}

/** Makes the folder `relative` below `root`, durable and closed to others. Refuses a link in its way: nothing may be written elsewhere. */
export async function ensureFolder(root: string, relative: string): Promise<string> {
  let folder = root
  try {
    for (const name of relative.split('/')) {
      folder = join(folder, name)
      if (await makeFolder(folder)) await syncFolder(dirname(folder))
      else if (!(await lstat(folder)).isDirectory()) throw notAFolder(relative)
    }
    return folder
  } catch (err) {
    throw storageError(err, 'DirectoryCreationFailed', 'failed to create artifact directory')
  }
}

async function makeFolder(folder: string): Promise<boolean> {
  try {
    await mkdir(folder, { mode: 0o700 })
    return true
  } catch (err) {
    if (codeOf(err) === 'EEXIST') return false
    if (codeOf(err) !== 'ENOENT') throw err
    return (await mkdir(folder, { mode: 0o700, recursive: true })) !== undefined // the root itself is gone
  }
}

function notAFolder(relative: string): ReconcileError {
  return new ReconcileError(
    'DirectoryCreationFailed',
    `failed to create artifact directory: '${relative}' is not a folder`,
  )
}

/** Moves `temp` to `target`, atomically where a file, link or nothing was there. What should not be there (a folder) is removed. */
export async function replace(temp: string, target: string): Promise<void> {
  try {
    await rename(temp, target)
  } catch (err) {
    if (!['EISDIR', 'ENOTEMPTY', 'EEXIST'].includes(codeOf(err))) throw err
    await rm(target, { recursive: true, force: true })
    await rename(temp, target)
  }
}

/** Makes `target` another name of the file `existing`, atomically, by way of the unused name `temp`. */
export async function linkOver(existing: string, target: string, temp: string): Promise<void> {
  try {
    await link(existing, temp)
    await replace(temp, target)
  } finally {
    // Renaming one name of a file to another of the same file does nothing, and leaves both.
    await rm(temp, { force: true })
  }
}

/** Whether a hard link failed because the file system, its limits or its owner do not allow it, so that only a copy is left. */
export function refusesLinks(err: unknown): boolean {
  return ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK', 'EXDEV'].includes(codeOf(err))
}
