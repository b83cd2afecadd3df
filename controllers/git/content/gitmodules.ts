import { messageOf } from '../../runtime/errors.ts'
import { runGit } from '../git.ts'
import { isLinkLocal, parseRepositoryUrl } from '../url.ts'

/** The URLs of a `.gitmodules` file (gitmodules(5)) by the path of the submodule's folder; undefined where two claim the same folder. */
export async function readGitmodules(
  content: Buffer,
  options: { env: Record<string, string>; signal: AbortSignal },
): Promise<Map<string, string | undefined>> {
  // By the parser that wrote it; an `include` would read files of this machine.
  const args = ['config', '--file', '-', '--no-includes', '--list', '-z']
  const listed = await runGit(args, { ...options, input: content }).catch((err: unknown) => {
    options.signal.throwIfAborted()
    // No GitError: what somebody has committed is no damage of the mirror, which would be made anew for it.
    throw new Error(messageOf(err), { cause: err })
  })
  const modules = new Map<string, { path?: string; url?: string }>()
  for (const record of listed.toString().split('\0')) {
    const [, name, field, value] = /^submodule\.(.*)\.(path|url)\n(.*)$/s.exec(record) ?? []
    if (name === undefined || value === undefined) continue
    modules.set(name, { ...modules.get(name), [field === 'path' ? 'path' : 'url']: value })
  }
  const urls = new Map<string, string | undefined>()
  for (const { path, url } of modules.values()) {
    if (path !== undefined) urls.set(path, urls.has(path) ? undefined : url)
  }
  return urls
}

/**
 * The address of a submodule as `.gitmodules` has it: a URL, `user@host:path`, or (from `./` or `../`) relative to its parent's address, of whose host it
 * cannot leave. Credentials in it are not used. Throws an Error.
 */
export function submoduleUrl(text: string, parent: string): string {
  const { href } = parseRepositoryUrl(absoluteUrl(text, parent))
  if (isLinkLocal(new URL(href))) throw new Error(`'${href}' is a link-local address`)
  return href
}

function absoluteUrl(text: string, parent: string): string {
  if (/^\.\.?\//.test(text)) return relativeUrl(text, parent)
  const [, user, host, path] = /^([\w.-]+@)([\w.-]+):(?!\/\/)\/?([^:]*)$/.exec(text) ?? []
  return user === undefined ? text : `ssh://${user}${host}/${path}`
}

/** By the rules of git-submodule(1): each `../` takes away one component of the parent's path. */
function relativeUrl(text: string, parent: string): string {
  const [, host = '', path = ''] = /^([a-z]+:\/\/[^/]*)\/*(.*)$/.exec(parent) ?? []
  const components = path.split('/').filter((component) => component !== '')
  for (const component of text.split('/')) {
    if (component === '..' && components.pop() === undefined) throw new Error(`'${text}' leads above the host`)
    if (component !== '..' && component !== '.' && component !== '') components.push(component)
  }
  return `${host}/${components.join('/')}`
}

/** Why a path cannot be a submodule's folder; undefined where it can. */
export function pathFlaw(path: string): string | undefined {
  if (!path.isWellFormed() || /\p{Cc}/u.test(path)) return 'its path contains a control character or is not UTF-8'
  if (path.startsWith('-')) return "its path starts with '-'"
  if (path.split('/').some((c) => c === '' || c === '.' || c === '..'))
    return "its path has an empty component, '.' or '..'"
  return undefined
}
