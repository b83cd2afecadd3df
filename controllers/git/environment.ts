import type { Access } from './access/access.ts'
import type { Endpoint } from './protocol/http.ts'

/** What every git process gets as its whole environment, before its configuration. */
export interface GitHome {
  /** An empty folder: no configuration, no credentials, no hooks of anyone. */
  home: string
  /** Where git itself is found; the only thing taken over from the controller's own environment. */
  path: string
}

/** Settings of every git process, by git-config(1) key. They win over any configuration file. */
const settings: Record<string, string> = {
  'core.hooksPath': '/dev/null',
  'core.fsmonitor': 'false',
  'credential.helper': '',
  'protocol.version': '2',
  'http.followRedirects': 'false',
  'transfer.fsckObjects': 'true',
  'transfer.bundleURI': 'false',
  'fetch.recurseSubmodules': 'false',
  // Always a pack: its size can be watched while it grows, and large files are not held in memory.
  'fetch.unpackLimit': '1',
  'core.bigFileThreshold': '16m',
  'gc.auto': '0',
  'maintenance.auto': 'false',
  // Blemishes of old histories that harm nobody; refusing them would refuse well-known repositories.
  ...Object.fromEntries(
    [
      'badDate',
      'badEmail',
      'badName',
      'badTimezone',
      'missingEmail',
      'missingNameBeforeEmail',
      'missingSpaceBeforeDate',
    ]
      .concat('missingSpaceBeforeEmail', 'multipleAuthors', 'zeroPaddedDate', 'zeroPaddedFilemode')
      .map((id) => [`fetch.fsck.${id}`, 'ignore']),
  ),
}

/** The most memory that git may ask for at once: a few bytes of a pack can claim to be gigabytes. In git's own notation. */
const allocationLimit = '256m'

/** The environment of a git process that touches local files only: no protocol is allowed. */
export function localEnvironment(base: GitHome): Record<string, string> {
  return environment(base, 'none', {})
}

/** The environment of a git process that fetches from `endpoint`. Credentials are here alone: never in an argument, never in a file. */
export function remoteEnvironment(base: GitHome, endpoint: Endpoint, access: Access): Record<string, string> {
  const { authorization } = access
  const header = authorization && endpoint.credentials ? `Authorization: ${authorization}` : undefined
  return environment(base, 'http:https', header ? { [`http.${endpoint.base}.extraHeader`]: header } : {})
}

function environment(base: GitHome, protocols: string, extra: Record<string, string>): Record<string, string> {
  const config = Object.entries({ ...settings, ...extra })
  const pairs = config.flatMap(([key, value], i) => [
    [`GIT_CONFIG_KEY_${i}`, key],
    [`GIT_CONFIG_VALUE_${i}`, value],
  ])
  return {
    PATH: base.path,
    HOME: base.home,
    LC_ALL: 'C',
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_TERMINAL_PROMPT: '0',
    GIT_ALLOW_PROTOCOL: protocols,
    // Objects that a mirror lacks are an error here, never a reason to ask someone for them.
    GIT_NO_LAZY_FETCH: '1',
    GIT_NO_REPLACE_OBJECTS: '1',
    GIT_ALLOC_LIMIT: allocationLimit,
    GIT_CONFIG_COUNT: String(config.length),
    ...Object.fromEntries(pairs),
  }
}
