/** What every git process gets as its whole environment, before its configuration. */
export interface GitHome {
  /** An empty folder: no configuration, no credentials, no hooks of anyone. */
  home: string
  /** Where git itself is found; the only thing taken over from the controller's own environment. */
  path: string
  /** Where credentials that a program reads from files alone are, while it runs: see `writeCredentialFiles`. */
  run: string
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

/** What a git process gets beside what all of them do. */
export interface GitExtras {
  /** Protocols that it may speak, as GIT_ALLOW_PROTOCOL lists them. */
  protocols: string
  /** By git-config(1) key. */
  config?: Record<string, string>
  variables?: Record<string, string>
}

/** The environment of a git process that touches local files only: no protocol is allowed. */
export function localEnvironment(base: GitHome): Record<string, string> {
  return gitEnvironment(base, { protocols: 'none' })
}

/** The whole environment of a git process. Credentials may be here, never in an argument. */
export function gitEnvironment(base: GitHome, extras: GitExtras): Record<string, string> {
  const config = Object.entries({ ...settings, ...extras.config })
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
    GIT_ALLOW_PROTOCOL: extras.protocols,
    // Objects that a mirror lacks are an error here, never a reason to ask someone for them.
    GIT_NO_LAZY_FETCH: '1',
    GIT_NO_REPLACE_OBJECTS: '1',
    GIT_ALLOC_LIMIT: allocationLimit,
    GIT_CONFIG_COUNT: String(config.length),
    ...Object.fromEntries(pairs),
    ...extras.variables,
  }
}
