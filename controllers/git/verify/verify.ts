import { messageOf, ReconcileError, StalledError } from '../../runtime/errors.ts'
import type { SecretData } from '../../runtime/secret.ts'
import { sanitize } from '../failure.ts'
import type { GitRepositoryVerify } from '../types.ts'
import { digestOf, readTrustedKeys, type TrustedKeys } from './keys.ts'
import { verifyPgp } from './pgp.ts'
import { factsOfTag, signatureOfCommit, signatureOfTag, type Signed } from './signed-object.ts'
import { verifySsh, type SshHome } from './ssh.ts'

/** What is to be verified. Objects are read only where they have not been verified with these keys before. */
export interface VerifyRequest {
  mode?: GitRepositoryVerify['mode']
  /** The content of the Secret with the public keys. */
  keys: SecretData
  /** `read` gives the object's bytes, which must be those that the id is made of. */
  commit: { sha: string; read: () => Promise<Buffer> }
  /** The tag by which the commit was found; `oid` is the commit's where it is a lightweight tag. */
  tag?: { name: string; oid: string; read: () => Promise<Buffer> } | undefined
  signal: AbortSignal
}

/** What `SourceVerified` says, and the mode in which it was found out. */
export interface Verified {
  message: string
  mode: VerifyMode
}

export type VerifyMode = 'HEAD' | 'Tag' | 'TagAndHEAD'

const maxRemembered = 10_000
const maxKeyrings = 16
/** Keys and signatures may expire. */
const rememberedMs = 3_600_000

/**
 * Makes the function that verifies commits and tags. It throws ReconcileErrors for the condition `SourceVerified` with Flux's reasons and messages; InvalidVerificationMode is a
 * StalledError. What it has verified it remembers for an hour, by ids, mode and keys.
 */
export function makeVerifier(home: SshHome): (request: VerifyRequest) => Promise<Verified> {
  const remembered = new Map<string, { verified: Verified; untilMs: number }>()
  const keyrings = new Map<string, Promise<TrustedKeys>>()

  /** Keyrings may be large, and many objects may share one. */
  function keysOf(data: SecretData, digest: string): Promise<TrustedKeys> {
    const known = keyrings.get(digest)
    if (known) return known
    const keys = readTrustedKeys(data)
    keys.catch(() => undefined) // whoever awaits it hears of it
    if (keyrings.size >= maxKeyrings) keyrings.clear()
    keyrings.set(digest, keys)
    return keys
  }

  return async (request) => {
    const mode = modeOf(request)
    const { commit, tag } = request
    const digest = digestOf(request.keys)
    const key = [mode, commit.sha, mode === 'HEAD' ? '' : `${tag?.oid} ${tag?.name}`, digest].join('\n')
    const known = remembered.get(key)
    if (known && performance.now() < known.untilMs) return known.verified
    const keys = await keysOf(request.keys, digest)
    const verified = { message: await verifyAll(request, mode, keys, home), mode }
    if (remembered.size >= maxRemembered) remembered.clear()
    remembered.set(key, { verified, untilMs: performance.now() + rememberedMs })
    return verified
  }
}

function modeOf({ mode = 'HEAD', tag }: VerifyRequest): VerifyMode {
  if (mode === 'head' || mode === 'HEAD') return 'HEAD'
  if (tag) return mode
  const why = "cannot verify tag object's signature if a tag reference is not specified"
  throw new StalledError('InvalidVerificationMode', why, { condition: 'SourceVerified' })
}

async function verifyAll(
  { commit, tag, signal }: VerifyRequest,
  mode: VerifyMode,
  keys: TrustedKeys,
  home: SshHome,
): Promise<string> {
  const signerOf = (signed: Signed) => verifySignature(signed, keys, home, signal)
  const lines: string[] = []
  if (mode !== 'HEAD' && tag) {
    const signer = await verifyTag(tag, commit.sha, signerOf, signal)
    lines.push(`- tag '${tag.name}@${tag.oid}' with key '${signer}'`)
  }
  if (mode !== 'Tag') lines.push(`- commit '${commit.sha}' with key '${await verifyCommit(commit, signerOf, signal)}'`)
  return ['verified signature of', ...lines].join('\n\t')
}

type SignerOf = (signed: Signed) => Promise<string>

async function verifyCommit(
  { sha, read }: VerifyRequest['commit'],
  signerOf: SignerOf,
  signal: AbortSignal,
): Promise<string> {
  const raw = await read()
  return await explained(`commit '${sha}'`, 'InvalidCommitSignature', signal, async () => {
    const signed = signatureOfCommit(raw)
    if (!signed) throw new Error('it is not signed')
    return await signerOf(signed)
  })
}

/** A signed tag says that a commit is the version of that name: both are compared, so that no other tag object can be put in its place. */
async function verifyTag(
  tag: NonNullable<VerifyRequest['tag']>,
  sha: string,
  signerOf: SignerOf,
  signal: AbortSignal,
): Promise<string> {
  const { name, oid, read } = tag
  const raw = oid === sha ? undefined : await read()
  const what = `tag '${name}'`
  const signed = await explained(what, 'InvalidTagSignature', signal, () => raw && signatureOfTag(raw))
  if (!raw || !signed) {
    const why = `cannot verify signature of ${what} since it is not signed`
    throw new ReconcileError('InvalidGitObject', why, { condition: 'SourceVerified' })
  }
  return await explained(what, 'InvalidTagSignature', signal, async () => {
    const facts = factsOfTag(raw)
    if (facts.name !== name) throw new Error(`the tag object is of another tag, '${sanitize(facts.name, [], 100)}'`)
    if (facts.type !== 'commit' || facts.object !== sha) throw new Error(`the tag object is not of commit '${sha}'`)
    return await signerOf(signed)
  })
}

/** What `work` gives; its Error in Flux's words. */
async function explained<R>(what: string, reason: string, signal: AbortSignal, work: () => R | Promise<R>): Promise<R> {
  try {
    return await work()
  } catch (err) {
    signal.throwIfAborted()
    const message = `signature verification of ${what} failed: ${messageOf(err)}`
    throw new ReconcileError(reason, message, { cause: err, condition: 'SourceVerified' })
  }
}

async function verifySignature(signed: Signed, keys: TrustedKeys, home: SshHome, signal: AbortSignal): Promise<string> {
  const { signature } = signed
  if (signature.startsWith('-----BEGIN PGP SIGNATURE')) {
    if (keys.pgp.length === 0) throw noKeys('PGP', '.asc')
    return await verifyPgp(signed, keys.pgp)
  }
  if (signature.startsWith('-----BEGIN SSH SIGNATURE')) {
    if (keys.ssh.length === 0) throw noKeys('SSH', '.sshpub')
    return await verifySsh(signed, keys.ssh, home, signal)
  }
  const x509 = signature.startsWith('-----BEGIN SIGNED MESSAGE')
  throw new Error(`unsupported signature type: ${x509 ? 'x509' : 'unknown'}`)
}

function noKeys(kind: string, suffix: string): Error {
  return new Error(`${kind} signature detected but no ${kind} public keys found in secret (keys with ${suffix} suffix)`)
}
