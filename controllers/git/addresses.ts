import { durationOf } from '../runtime/duration.ts'
import { messageOf, StalledError } from '../runtime/errors.ts'
import { withTimeout } from '../runtime/timeout.ts'
import type { SourceContext } from '../source/source.ts'
import { MissingError } from './resolve.ts'
import type { GitRepositorySpec } from './types.ts'
import { parseRepositoryUrl, type RepositoryUrl } from './url.ts'

const maxFallbacks = 8
const defaultTimeout = '60s'

/** `spec.url`, then `spec.fallbackURLs`, all checked. Throws a StalledError `URLInvalid`. */
export function addressesOf({ url, fallbackURLs = [] }: GitRepositorySpec): RepositoryUrl[] {
  if (fallbackURLs.length > maxFallbacks) {
    throw new StalledError(
      'URLInvalid',
      `spec.fallbackURLs has ${fallbackURLs.length} entries, at most ${maxFallbacks} are allowed`,
    )
  }
  return [url, ...fallbackURLs].map(parseRepositoryUrl)
}

/**
 * What `ask` gives for the first address that answers. Each has an equal share of `spec.timeout`, so that one that hangs leaves time for the
 * next. Where none answers the first one's error is thrown, and so is at once one that no other address could change.
 */
export async function askInOrder<R>(
  urls: readonly RepositoryUrl[],
  { timeout = defaultTimeout }: GitRepositorySpec,
  ctx: SourceContext,
  ask: (url: RepositoryUrl, ctx: SourceContext) => Promise<R>,
): Promise<R> {
  const shareMs = durationOf('spec.timeout', timeout) / urls.length
  let first: unknown
  for (const [at, url] of urls.entries()) {
    const isLast = at === urls.length - 1
    try {
      // The last one may use all that is left.
      if (isLast) return await ask(url, ctx)
      return await withTimeout('its share of spec.timeout', shareMs, ctx, (bounded) => ask(url, bounded))
    } catch (err) {
      if (ctx.signal.aborted || err instanceof StalledError || err instanceof MissingError) throw err
      first ??= err
      if (!isLast) ctx.log.info({ error: messageOf(err) }, 'repository not reached, asking its next address')
    }
  }
  throw first
}
