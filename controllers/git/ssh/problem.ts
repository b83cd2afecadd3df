const handshake = 'ssh: handshake failed'
const denial = 'the server does not accept the key'
const identity = 'ssh: identity'

/** What ssh says when it fails, and how that is told. The first that fits counts. */
const problems: [RegExp, (found: RegExpExecArray) => string][] = [
  [
    /REMOTE HOST IDENTIFICATION HAS CHANGED[^]*?(SHA256:\S+)/,
    ([, key]) => `${handshake}: knownhosts: key mismatch: the host has ${key}`,
  ],
  [/REVOKED HOST KEY DETECTED/, () => `${handshake}: knownhosts: the host's key is revoked`],
  [
    /no matching host key type found\. Their offer: (\S+)/,
    ([, offer]) => `${handshake}: knownhosts: key is unknown: the host offers ${offer}`,
  ],
  [/Host key verification failed|No \S+ host key is known/, () => `${handshake}: knownhosts: key is unknown`],
  [/incorrect passphrase supplied/, () => `${identity}: 'password' is not the passphrase of 'identity'`],
  [/^Load key ".*": (.*)$/m, ([, why]) => `${identity}: ${why}`],
  [/Permission denied \(([\w,-]+)\)/, ([, methods]) => `${handshake}: ${denial} (Permission denied (${methods}))`],
  [
    /no matching ([\w ]{1,40}) found\. Their offer: (\S+)/,
    ([, what, offer]) => `${handshake}: no common ${what}, the server offers ${offer}`,
  ],
  [/^No user exists for uid (\d+)/m, ([, uid]) => `ssh needs a name for user ${uid} in /etc/passwd`],
  [/^ERROR: (.*)$/m, ([, why]) => `remote: ${why}`],
  [/^proxy: (.*)$/m, ([, why]) => `failed to connect through the proxy: ${why}`],
]

/** What went wrong, out of the standard error of ssh, or of a git that had it at work; undefined where ssh has no part in it. */
export function sshProblem(stderr: string): string | undefined {
  for (const [pattern, tell] of problems) {
    const found = pattern.exec(stderr)
    if (found) return tell(found)
  }
  // What git says itself, and the advice behind it, tell less than what the other side or ssh has said before.
  const [, before = ''] = /^([^]*?)^fatal: Could not read from remote repository/m.exec(stderr) ?? []
  // A server's complaint must not look like one of our own git.
  const told = before
    .trim()
    .split(/[\r\n]+/)
    .map((line) => line.replace(/^(?=fatal|error)/, 'remote: '))
  return told.join('; ') || undefined
}

/** Whether a text of `sshProblem` says that keys are at fault: those of the Secret, or the host's. */
export function isKeyProblem(text: string): boolean {
  return text.startsWith(`${identity}: `) || text.startsWith(`${handshake}: knownhosts: `)
}

/** Whether a text of `sshProblem` says that the server wants another key. */
export function isDenial(text: string): boolean {
  return text.startsWith(`${handshake}: ${denial}`)
}
