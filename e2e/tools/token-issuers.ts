import { type KeyObject, verify } from 'node:crypto'
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { text } from 'node:stream/consumers'
import type { Credential } from './certificates.ts'
import { listen } from './port.ts'

/** A server on the loopback that issues tokens as one of the big providers does, once it has checked who asks. */
export interface TokenIssuer {
  url: string
  /** `METHOD path` of each request, in order. */
  requests: string[]
  /** What each request for a token said, where it was a form. */
  forms: Record<string, string>[]
  /** How many have been issued; the last one's number ends it. */
  issued(): number
  stop(): Promise<void>
}

export interface IssuerOptions {
  lifetimeMs?: number
  tls?: Credential
}

export interface GithubOptions extends IssuerOptions {
  appId: number
  publicKey: KeyObject
  /** Where the App is installed. */
  owner: string
  kind: 'orgs' | 'users'
  installation: number
}

/** GitHub's API below `/api/v3`: tokens `ghs_<n>` for the installation of an App that signs with its key. */
export function startGithubApi(options: GithubOptions): Promise<TokenIssuer> {
  const { appId, publicKey, owner, kind, installation, lifetimeMs = 3_600_000 } = options
  return start(options, async (request, issuer) => {
    const why = refusal(request.headers.authorization, String(appId), publicKey)
    if (why) return { status: 401, body: { message: why } }
    if (request.method === 'GET' && request.url === `/api/v3/${kind}/${owner}/installation`)
      return { status: 200, body: { id: installation } }
    if (request.method !== 'POST' || request.url !== `/api/v3/app/installations/${installation}/access_tokens`)
      return { status: 404, body: { message: 'Not Found' } }
    const expires = new Date(Date.now() + lifetimeMs).toISOString()
    return { status: 201, body: { token: `ghs_hunter2_${issuer.next()}`, expires_at: expires } }
  })
}

/** Why a JSON Web Token signed with RS256 is not one of this App, as of now; undefined where it is. */
function refusal(authorization: string | undefined, issuer: string, publicKey: KeyObject): string | undefined {
  const [head = '', body = '', signature = ''] = (authorization ?? '').replace(/^Bearer /, '').split('.')
  if (!verify('sha256', Buffer.from(`${head}.${body}`), publicKey, Buffer.from(signature, 'base64url')))
    return 'A JSON web token could not be decoded'
  const claims = claimsOf(authorization ?? '')
  const now = Date.now() / 1000
  const { iat = 0, exp = 0 } = claims as { iat?: number; exp?: number }
  if (claims['iss'] !== issuer) return "'Issuer' claim ('iss') must be an Integer"
  if (iat > now || exp < now || exp - iat > 600) return "'Expiration time' claim ('exp') is too far in the future"
  return undefined
}

/** What a JSON Web Token says, unchecked. */
export function claimsOf(token: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as Record<string, unknown>
}

/** Microsoft Entra: tokens `entra_<n>` for whoever sends a form (OAuth 2.0, client credentials). It has to speak TLS. */
export function startEntra(options: IssuerOptions & { tls: Credential }): Promise<TokenIssuer> {
  const { lifetimeMs = 3_600_000 } = options
  return start(options, async (request, issuer) => {
    const tenant = request.url?.split('/')[1] ?? ''
    const base = `${issuer.url}/${tenant}`
    if (request.url?.startsWith(`/${tenant}/v2.0/.well-known/openid-configuration`)) {
      const endpoints = {
        token_endpoint: `${base}/oauth2/v2.0/token`,
        authorization_endpoint: `${base}/oauth2/v2.0/authorize`,
        issuer: `${base}/v2.0`,
        jwks_uri: `${base}/discovery/v2.0/keys`,
      }
      return { status: 200, body: endpoints }
    }
    if (!request.url?.startsWith(`/${tenant}/oauth2/v2.0/token`)) return { status: 404, body: {} }
    issuer.forms.push(await formOf(request))
    const token = { access_token: `entra_hunter2_${issuer.next()}`, expires_in: lifetimeMs / 1000 }
    return { status: 200, body: { token_type: 'Bearer', ...token } }
  })
}

/** AWS STS: keys for whoever asks for a role with a web identity. */
export function startSts(options: IssuerOptions = {}): Promise<TokenIssuer> {
  const { lifetimeMs = 3_600_000 } = options
  return start(options, async (request, issuer) => {
    const form = await formOf(request)
    issuer.forms.push(form)
    const expires = new Date(Date.now() + lifetimeMs).toISOString()
    const keys = {
      AccessKeyId: `ASIAEXAMPLE${issuer.next()}`,
      SecretAccessKey: 'hunter2-key',
      SessionToken: 'hunter2-session',
      Expiration: expires,
    }
    const xml = Object.entries(keys).map(([name, value]) => `<${name}>${value}</${name}>`)
    const result = `<Credentials>${xml.join('')}</Credentials>`
    const name = form['Action'] ?? ''
    return {
      status: 200,
      body: `<${name}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><${name}Result>${result}</${name}Result></${name}Response>`,
    }
  })
}

async function formOf(request: IncomingMessage): Promise<Record<string, string>> {
  return Object.fromEntries(new URLSearchParams(await text(request)))
}

interface Running extends TokenIssuer {
  next(): number
}

type Answer = (request: IncomingMessage, issuer: Running) => Promise<{ status: number; body: object | string }>

async function start({ tls }: IssuerOptions, answer: Answer): Promise<TokenIssuer> {
  let count = 0
  const listener: RequestListener = (request, response) => {
    running.requests.push(`${request.method} ${request.url}`)
    void answer(request, running).then(
      ({ status, body }) => respond(response, status, body),
      () => response.destroy(),
    )
  }
  const server: Server = tls
    ? createTlsServer({ cert: tls.certificate, key: tls.key }, listener)
    : createServer(listener)
  const port = await listen(server)
  const running: Running = {
    url: `${tls ? 'https' : 'http'}://127.0.0.1:${port}`,
    requests: [],
    forms: [],
    issued: () => count,
    next: () => ++count,
    stop: async () => {
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeAllConnections()
      await closed
    },
  }
  return running
}

function respond(response: ServerResponse, status: number, body: object | string): void {
  const isText = typeof body === 'string'
  response.writeHead(status, { 'content-type': isText ? 'text/xml' : 'application/json' })
  response.end(isText ? body : JSON.stringify(body))
}
