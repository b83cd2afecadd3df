/** What is read of a commit object. Texts hold no control characters but the line breaks of `message`. */
export interface CommitInfo {
  /** The id of its root folder. */
  tree: string
  parents: string[]
  /** `Name <mail>`, at most 200 characters; empty where it cannot be read. */
  author: string
  /** Seconds since 1970 at which it was written; 0 where that cannot be read. */
  authoredAt: number
  /** Seconds since 1970 at which it was committed; 0 where that cannot be read. */
  committedAt: number
  /** First line of its message; at most 50 characters and, where there are more, `...`. */
  subject: string
  /** The whole message; at most 1,000 characters and, where there are more, `...`. */
  message: string
}

const maxSubjectLength = 50
const maxAuthorLength = 200
const maxMessageLength = 1000
const maxParents = 1000
/** Of JavaScript's Date (ECMA-262 §21.4.1.1), less the years that RFC 3339 cannot write. */
const maxDateSeconds = 253_402_300_799

/** Reads the content of a commit object (git-hash-object's `commit` type). Throws an Error where it names no tree. */
export function parseCommit(content: Buffer): CommitInfo {
  const text = content.toString()
  const end = text.indexOf('\n\n')
  const header = end < 0 ? text : text.slice(0, end)
  const message = end < 0 ? '' : text.slice(end + 2).trim()
  const tree = /^tree ([0-9a-f]{40})$/m.exec(header)?.[1]
  if (tree === undefined) throw new Error('the commit names no tree')
  const author = personOf('author', header)
  return {
    tree,
    parents: Array.from(header.matchAll(/^parent ([0-9a-f]{40})$/gm), (m) => m[1]!).slice(0, maxParents),
    author: shorten(printable(author.who), maxAuthorLength),
    authoredAt: author.seconds,
    committedAt: personOf('committer', header).seconds,
    subject: shorten(printable(message.split('\n', 1)[0]!), maxSubjectLength),
    message: shorten(lines(message), maxMessageLength),
  }
}

/** What consumers may want to know of a commit; goes into the Artifact. */
export function metadataOf({ author, committedAt, message }: CommitInfo): Record<string, string> {
  const time = committedAt > 0 && committedAt <= maxDateSeconds ? new Date(committedAt * 1000).toISOString() : ''
  const facts = { 'git.author': author, 'git.time': time, 'git.message': message }
  return Object.fromEntries(Object.entries(facts).filter(([, text]) => text !== ''))
}

/** `<role> <name> <<mail>> <seconds> <zone>` */
function personOf(role: 'author' | 'committer', header: string): { who: string; seconds: number } {
  const line = header.split('\n').find((l) => l.startsWith(`${role} `)) ?? ''
  const [, who = '', seconds = '0'] = /^\w+ (.*>) (\d{1,12}) [-+]\d{4}$/.exec(line) ?? []
  return { who, seconds: Number(seconds) }
}

function lines(text: string): string {
  const start = text.slice(0, 4 * maxMessageLength)
  return start
    .split(/\r?\n/)
    .map((line) => printable(line, 'trimEnd'))
    .join('\n')
}

function printable(line: string, trim: 'trim' | 'trimEnd' = 'trim'): string {
  return line
    .slice(0, 4 * maxMessageLength)
    .replace(/\p{C}+/gu, ' ')
    [trim]()
}

function shorten(text: string, maxLength: number): string {
  const runes = Array.from(text)
  return runes.length > maxLength ? `${runes.slice(0, maxLength).join('')}...` : text
}
