/** What is read of a commit object. */
export interface CommitInfo {
  /** Seconds since 1970 at which it was committed; 0 where that cannot be read. */
  committedAt: number
  /** First line of its message, without control characters; at most 50 characters and, where there are more, `...`. */
  subject: string
}

const maxSubjectLength = 50

/** Reads the content of a commit object (git-hash-object's `commit` type). */
export function parseCommit(content: Buffer): CommitInfo {
  const text = content.toString()
  const end = text.indexOf('\n\n')
  const header = end < 0 ? text : text.slice(0, end)
  const committer = /^committer .*> (\d{1,12}) [-+]\d{4}$/m.exec(header)
  const message = end < 0 ? '' : text.slice(end + 2)
  return { committedAt: Number(committer?.[1] ?? 0), subject: shorten(message.trimStart().split('\n', 1)[0] ?? '') }
}

function shorten(line: string): string {
  const printable = line
    .slice(0, 1000)
    .replace(/\p{C}+/gu, ' ')
    .trim()
  const runes = Array.from(printable)
  return runes.length > maxSubjectLength ? `${runes.slice(0, maxSubjectLength).join('')}...` : printable
}
