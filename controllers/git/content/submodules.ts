import { messageOf, ReconcileError } from '../../runtime/errors.ts'
import { makeAccess, type Access } from '../access/access.ts'
import { gitFailure, sanitize } from '../failure.ts'
import type { Mirrors } from '../mirror/mirrors.ts'
import { pathFlaw, submoduleUrl } from './gitmodules.ts'
import { Part } from './part.ts'

const maxDepth = 10
const maxModules = 100

/** The submodules of a part, of all its submodules, and so on; none of them is left open where one fails. */
export async function openSubmodules(root: Part, mirrors: Mirrors): Promise<Part[]> {
  const opener = new Opener(root, mirrors)
  try {
    await opener.openBelow(root, 1)
    return opener.opened
  } catch (err) {
    await Promise.all(opener.opened.map((part) => part.close()))
    throw err
  }
}

class Opener {
  readonly opened: Part[] = []
  readonly #root: Part
  readonly #mirrors: Mirrors
  readonly #origin: string
  readonly #own: Access
  readonly #anonymous: Access

  constructor(root: Part, mirrors: Mirrors) {
    const { remote } = root.place.mirror
    this.#root = root
    this.#mirrors = mirrors
    this.#origin = originOf(remote.url)
    this.#own = remote.access
    const { tls, proxy } = remote.access
    this.#anonymous = makeAccess(undefined, { ...(tls?.ca && { tls: { ca: tls.ca } }), ...(proxy && { proxy }) })
  }

  async openBelow(parent: Part, depth: number): Promise<void> {
    const modules = await parent.submodules()
    for (const { path, sha, url } of modules) {
      const prefix = `${parent.prefix}${path}/`
      const part = await this.#named(prefix, async () => {
        if (depth > maxDepth) throw new Error(`submodules are nested more than ${maxDepth} deep`)
        if (this.opened.length >= maxModules) throw new Error(`there are more than ${maxModules} submodules`)
        return await this.#open(parent, { path, sha, url }, prefix)
      })
      this.opened.push(part)
      await this.openBelow(part, depth + 1)
    }
  }

  async #open(
    parent: Part,
    module: { path: string; sha: string; url: string | undefined },
    prefix: string,
  ): Promise<Part> {
    const flaw = pathFlaw(module.path)
    if (flaw) throw new Error(flaw)
    if (module.url === undefined) throw new Error('.gitmodules does not say, or not clearly, where it is')
    const { mirror, signal } = parent.place
    const url = submoduleUrl(module.url, mirror.remote.url)
    const access = this.#accessFor(url, parent)
    if (url.startsWith('ssh:') && !access.ssh) {
      throw new Error(`'${url}' needs a key, and the credentials are only for '${this.#origin}'`)
    }
    const place = { mirror: this.#mirrors.mirrorFor(url, access), sha: module.sha, signal }
    return await Part.open({ place, prefix, readers: parent.readers })
  }

  /** Credentials go nowhere but to the host of the object's own URL, and not at the word of what was fetched from another. */
  #accessFor(url: string, parent: Part): Access {
    const trusted = parent.place.mirror.remote.access.key === this.#own.key
    return trusted && originOf(url) === this.#origin ? this.#own : this.#anonymous
  }

  async #named<R>(prefix: string, work: () => Promise<R>): Promise<R> {
    try {
      return await work()
    } catch (err) {
      const { signal, mirror } = this.#root.place
      if (signal.aborted) throw err
      const message = `submodule '${sanitize(prefix.slice(0, -1))}': ${sanitize(messageOf(err), this.#own.secrets, 1000)}`
      if (!(err instanceof ReconcileError)) throw gitFailure(mirror.remote.url, message, { cause: err })
      const { retryAfterMs } = err
      // Not its own class: another commit may mend what only a change of the spec could where this were the spec's URL.
      throw new ReconcileError(err.reason === 'URLInvalid' ? 'GitOperationFailed' : err.reason, message, {
        cause: err,
        retryAfterMs,
      })
    }
  }
}

/** Scheme, host and port, where that is not the scheme's own. */
function originOf(href: string): string {
  const [, scheme = '', host = ''] = /^([a-z]+:\/\/)(?:[^/@]*@)?([^/]*)/.exec(href) ?? []
  return scheme + host
}
