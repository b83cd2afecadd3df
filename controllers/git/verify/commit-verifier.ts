import type { SourceContext } from '../../source/source.ts'
import { readObject } from '../content/reading.ts'
import type { Mirror } from '../mirror/mirror.ts'
import type { FoundCommit } from '../resolve.ts'
import type { GitRepository } from '../types.ts'
import { messageOf } from '../../runtime/errors.ts'
import { keysFailure } from './keys.ts'
import { makeVerifier } from './verify.ts'

/** `verify` of the git source: reads the keys on every pass, and the objects only where they have not been verified with these keys before. */
export function makeCommitVerifier(home: Parameters<typeof makeVerifier>[0]) {
  const verify = makeVerifier(home)
  return async (
    { spec }: GitRepository,
    { mirror, sha, ref, tag }: FoundCommit & { mirror: Mirror },
    ctx: SourceContext,
  ): Promise<string | undefined> => {
    if (!spec.verify) return undefined
    const { signal } = ctx
    const keys = await ctx.secrets.read(spec.verify.secretRef.name).catch((err: unknown) => {
      signal.throwIfAborted()
      throw keysFailure(messageOf(err), err)
    })
    const partial = true // whatever of the files is not there yet, a signature needs none
    const { message } = await verify({
      mode: spec.verify.mode,
      keys,
      commit: { sha, read: () => readObject({ mirror, sha, ref, partial, signal }, 'commit') },
      tag: tag && { ...tag, read: () => readObject({ mirror, sha: tag.oid, ref, partial, signal }, 'tag') },
      signal,
    })
    return message
  }
}
