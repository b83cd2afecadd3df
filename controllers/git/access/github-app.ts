import { createPrivateKey, type KeyObject, sign } from 'node:crypto'
import { request } from 'undici'
import type { Context } from '../../runtime/context.ts'
import { messageOf, ReconcileError } from '../../runtime/errors.ts'
import type { SecretData } from '../../runtime/secret.ts'
import type { Token, TokenCache, TokenUser } from '../../source/identity/token-cache.ts'
import { dispatcherFor, transportKey } from '../../source/transport/dispatcher.ts'
import type { Transport } from '../../source/transport/transport.ts'
import { sanitize } from '../failure.ts'
import { noteRetryAfter, refuseWhileAskedToWait } from '../protocol/host-waits.ts'
import type { ReadSecret } from './access.ts'
import { basicCredentials, type Credentials } from './credentials.ts'

/** An App of GitHub and where it is installed. */
interface App {
  id: string
  privateKey: KeyObject
  installation: { id: string } | { owner: string }
  /** Without a slash at its end. */
  api: string
  transport: Transport
}

const publicApi = 'https://api.github.com'
const requestMs = 10_000
const maxAnswerBytes = 1024 * 1024

/** What the installation of an App may do, as GitHub takes it: the token is good for an hour. Throws an Error that says what went wrong. */
export async function githubAppCredentials(
  secret: ReadSecret,
  transport: Transport,
  user: TokenUser,
  tokens: TokenCache,
  ctx: Pick<Context, 'signal'>,
): Promise<Credentials> {
  const app = appFrom(secret, transport)
  const { privateKey, installation, id, api } = app
  const who = ['github', id, installation, api, privateKey.export({ type: 'pkcs8', format: 'pem' })]
  const token = await tokens.get([...who, transportKey(transport)], user, ctx.signal, (signal) =>
    installationToken(app, AbortSignal.any([signal, AbortSignal.timeout(requestMs)])),
  )
  const { authorization, secrets } = basicCredentials('x-access-token', token)
  return { identity: JSON.stringify(who), authorization, secrets }
}

function appFrom({ data, shown }: ReadSecret, transport: Transport): App {
  const id = numberIn(data, 'githubAppID', shown)
  const pem = data['githubAppPrivateKey']?.toString()
  if (!pem) throw new Error(`secret '${shown}': key 'githubAppPrivateKey' not found`)
  const owner = data['githubAppInstallationOwner']?.toString().trim() ?? ''
  const hasInstallation = Boolean(data['githubAppInstallationID']?.length)
  const choice = `exactly one of 'githubAppInstallationID' and 'githubAppInstallationOwner'`
  if (hasInstallation === (owner !== '')) throw new Error(`secret '${shown}' must contain ${choice}`)
  if (owner && !/^[A-Za-z0-9_-]{1,100}$/.test(owner))
    throw new Error(`secret '${shown}': 'githubAppInstallationOwner' is not the name of a user or organization`)
  return {
    id,
    privateKey: rsaKey(pem, shown),
    installation: owner ? { owner } : { id: numberIn(data, 'githubAppInstallationID', shown) },
    api: apiIn(data, shown),
    transport,
  }
}

function numberIn(data: SecretData, name: string, shown: string): string {
  const text = data[name]?.toString().trim() ?? ''
  if (!/^[1-9]\d{0,18}$/.test(text)) throw new Error(`secret '${shown}': '${name}' is not a number`)
  return text
}

function rsaKey(pem: string, shown: string): KeyObject {
  let key: KeyObject
  try {
    key = createPrivateKey(pem)
  } catch (err) {
    throw new Error(`secret '${shown}': 'githubAppPrivateKey' is not a private key in PEM`, { cause: err })
  }
  if (key.asymmetricKeyType !== 'rsa') throw new Error(`secret '${shown}': 'githubAppPrivateKey' is not an RSA key`)
  return key
}

function apiIn(data: SecretData, shown: string): string {
  const text = data['githubAppBaseURL']?.toString().trim() || publicApi
  const url = URL.canParse(text) && text.length <= 2048 ? new URL(text) : undefined
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash)
    throw new Error(`secret '${shown}': 'githubAppBaseURL' is not an http or https URL`)
  return url.href.replace(/\/+$/, '')
}

async function installationToken(app: App, signal: AbortSignal): Promise<Token<string>> {
  const id =
    'id' in app.installation ? app.installation.id : await findInstallation(app, app.installation.owner, signal)
  const answer = await ask(app, 'POST', `/app/installations/${id}/access_tokens`, signal)
  const { token, expires_at: expiresAt } = answer.body
  if (answer.status !== 201 || typeof token !== 'string' || token === '')
    throw failed(`failed to get token of GitHub App installation ${id}: ${whyNot(answer)}`, answer.retryAfterMs)
  const expiresAtMs = typeof expiresAt === 'string' ? Date.parse(expiresAt) : NaN
  return { value: token, expiresAtMs: Number.isNaN(expiresAtMs) ? Date.now() : expiresAtMs }
}

async function findInstallation(app: App, owner: string, signal: AbortSignal): Promise<string> {
  const failures: string[] = []
  for (const path of [`/orgs/${owner}/installation`, `/users/${owner}/installation`]) {
    const answer = await ask(app, 'GET', path, signal)
    if (answer.status === 200 && Number.isSafeInteger(answer.body['id'])) return String(answer.body['id'])
    failures.push(whyNot(answer))
  }
  throw new Error(`failed to find installation of GitHub App ${app.id} for '${owner}': ${failures.join(', ')}`)
}

interface Answer {
  status: number
  body: Record<string, unknown>
  retryAfterMs: number | undefined
}

async function ask(app: App, method: 'GET' | 'POST', path: string, signal: AbortSignal): Promise<Answer> {
  const { api, transport } = app
  const shown = new URL(api).host
  refuseWhileAskedToWait(api, transport, (why, retryAfterMs) => failed(why, retryAfterMs))
  try {
    const response = await request(api + path, {
      method,
      dispatcher: dispatcherFor(transport),
      headers: {
        authorization: `Bearer ${appToken(app, Date.now())}`,
        accept: 'application/vnd.github+json',
        'x-github-api-version': '2022-11-28',
        'user-agent': 'openflux',
      },
      headersTimeout: requestMs,
      bodyTimeout: requestMs,
      signal,
    })
    const retryAfterMs = noteRetryAfter(api, transport, response)
    return { status: response.statusCode, body: objectIn(await limitedText(response.body)), retryAfterMs }
  } catch (err) {
    const why = signal.aborted ? 'no answer in time' : sanitize(messageOf(err))
    throw new Error(`request to '${shown}' failed: ${why}`, { cause: err })
  }
}

/** RFC 7519, signed with RS256. Clocks may differ by half a minute. */
function appToken({ id, privateKey }: App, nowMs: number): string {
  const issued = Math.floor(nowMs / 1000) - 30
  const encode = (part: object) => Buffer.from(JSON.stringify(part)).toString('base64url')
  const text = `${encode({ alg: 'RS256', typ: 'JWT' })}.${encode({ iat: issued, exp: issued + 120, iss: id })}`
  return `${text}.${sign('sha256', Buffer.from(text), privateKey).toString('base64url')}`
}

async function limitedText(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body) {
    bytes += chunk.length
    if (bytes > maxAnswerBytes) throw new Error(`the answer is longer than ${maxAnswerBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}

function objectIn(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
  } catch {
    return {} // a page of something in between: the status says enough
  }
}

function whyNot({ status, body: { message } }: Answer): string {
  return `HTTP ${status}${typeof message === 'string' ? `: ${sanitize(message, [], 200)}` : ''}`
}

function failed(why: string, retryAfterMs: number | undefined): ReconcileError {
  return new ReconcileError('AuthenticationFailed', why, { retryAfterMs })
}
