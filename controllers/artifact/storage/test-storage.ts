import { openStorage, type Storage, type StorageOptions, type StoreResult } from './storage.ts'
import { entriesOf, makeTempFolder } from '../test-support.ts'

/** Where test artifacts go unless said otherwise. */
export const folder = 'gitrepository/team-a/app'

/** A storage in a folder of its own, with a clock that only moves when it is told. */
export interface StorageFixture {
  root: string
  storage: Storage
  clock: { ms: number }
  store(content: string, revision?: string, fileName?: string, into?: string): Promise<StoreResult>
  [Symbol.asyncDispose](): Promise<void>
}

/** Opens a new storage; removed with `await using`. For tests. */
export async function makeStorage(options: Partial<StorageOptions> = {}): Promise<StorageFixture> {
  const temp = await makeTempFolder()
  const clock = { ms: Date.parse('2026-01-02T03:04:05.678Z') }
  const storage = await openStorage({ root: temp.path, now: () => clock.ms, ...options })
  return {
    root: temp.path,
    storage,
    clock,
    store: (content, revision = `main@sha1:${content}`, fileName = content, into = folder) =>
      storage.store(into, revision, entriesOf({ 'a.txt': content }), { fileName }),
    [Symbol.asyncDispose]: () => temp[Symbol.asyncDispose](),
  }
}
