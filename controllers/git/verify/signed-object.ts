/** A commit or tag that carries a signature. */
export interface Signed {
  /** The bytes that were signed. */
  payload: Buffer
  /** As it is in the object, armor included. */
  signature: string
}

/** What a tag says beside its signature. */
export interface TagFacts {
  name: string
  /** Id of what it points to. */
  object: string
  /** `commit`, or something else. */
  type: string
}

/** More than ten times the largest signature that any of the supported algorithms makes. */
const maxSignatureChars = 64 * 1024

/**
 * The signature of a commit (gitformat-signature(5)): its header `gpgsig`; what was signed is the commit without it and without `gpgsig-sha256`, the
 * signature for the same commit under its other name. Undefined where there is none. Throws an Error where git and we could take it for different things.
 */
export function signatureOfCommit(raw: Buffer): Signed | undefined {
  const text = raw.toString('latin1') // a byte is a character: nothing is lost
  const end = text.indexOf('\n\n')
  if (end < 0 || !/^tree [0-9a-f]{40}\n/.test(text)) throw new Error('it is not a well-formed commit')
  const signatures: string[] = []
  const signed: string[] = []
  for (const field of text.slice(0, end).split(/\n(?! )/)) {
    if (field.startsWith('gpgsig ')) signatures.push(field.slice('gpgsig '.length).replaceAll('\n ', '\n'))
    else if (!field.startsWith('gpgsig')) signed.push(field)
    else if (!field.startsWith('gpgsig-sha256 ')) throw new Error('it has a header that only looks like a signature')
  }
  const [signature, another] = signatures
  if (signature === undefined) return undefined
  if (another !== undefined) throw new Error('it has more than one signature')
  return { payload: Buffer.from(signed.join('\n') + text.slice(end), 'latin1'), signature: bounded(signature) }
}

/** The signature of a tag, which is the end of its message; undefined where there is none. Throws an Error where it is not well-formed. */
export function signatureOfTag(raw: Buffer): Signed | undefined {
  const text = raw.toString('latin1')
  const starts = [...text.matchAll(/^-----BEGIN (?:PGP SIGNATURE|PGP MESSAGE|SIGNED MESSAGE|SSH SIGNATURE)-----/gm)]
  const start = starts.at(-1)?.index
  if (start === undefined) return undefined
  return { payload: raw.subarray(0, start), signature: bounded(text.slice(start)) }
}

/** Reads the header of a tag object. Throws an Error where it is not well-formed. */
export function factsOfTag(raw: Buffer): TagFacts {
  const header = raw.toString('utf8', 0, 16 * 1024)
  const [, object, type, name] = /^object ([0-9a-f]{40})\ntype (\w+)\ntag ([^\n]+)\n/.exec(header) ?? []
  if (!object || !type || !name) throw new Error('it is not a well-formed tag')
  return { object, type, name }
}

/** Takes an armored text apart that must be all there is. Throws an Error. */
export function armorOf(signature: string, label: string): string {
  const text = signature.trimEnd()
  const begin = `-----BEGIN ${label}-----`
  const end = `\n-----END ${label}-----`
  if (!text.startsWith(begin) || !text.endsWith(end) || text.indexOf(end) !== text.length - end.length) {
    throw new Error('the signature is not well-formed')
  }
  return text.slice(begin.length, -end.length)
}

function bounded(signature: string): string {
  if (signature.length > maxSignatureChars) throw new Error(`its signature is longer than ${maxSignatureChars} bytes`)
  return signature
}
