import { createHash, createHmac } from 'node:crypto'
import type { Context } from '../../runtime/context.ts'
import { awsCredentials, type AwsKeys, type AwsRequest } from '../../source/identity/aws.ts'
import type { TokenCache } from '../../source/identity/token-cache.ts'
import type { RepositoryUrl } from '../url.ts'
import { basicCredentials, type Credentials, redacted } from './credentials.ts'

const codeCommitHost = /^git-codecommit(?:-fips)?\.([a-z0-9-]{1,32})\.amazonaws\.com(?:\.cn)?$/
const algorithm = 'AWS4-HMAC-SHA256'

/** What CodeCommit takes of whoever has keys of AWS. Throws an Error where the URL is not one of CodeCommit's, or there are no keys. */
export async function codeCommitCredentials(
  url: RepositoryUrl,
  asked: Omit<AwsRequest, 'region'>,
  who: string,
  tokens: TokenCache,
  ctx: Pick<Context, 'client' | 'signal'>,
): Promise<Credentials> {
  const { hostname, protocol } = new URL(url.href)
  const region = codeCommitHost.exec(hostname)?.[1]
  if (region === undefined) throw new Error(`'${hostname}' is not a host of AWS CodeCommit`)
  if (protocol !== 'https:') throw new Error('AWS CodeCommit is reached over https alone')
  const keys = await awsCredentials({ region, ...asked }, tokens, ctx)
  const { username, password } = codeCommitLogin(url.href, region, keys, new Date())
  const { authorization, secrets } = basicCredentials(username, password)
  return { identity: who, authorization, secrets: [...secrets, ...redacted(username, keys.secretAccessKey)] }
}

/**
 * The name and password that CodeCommit takes for 15 minutes: the id of the key, with its session behind a `%`, and a signature in version 4 over the method
 * `GIT`, the path and the host, with its time in front.
 */
export function codeCommitLogin(
  href: string,
  region: string,
  { accessKeyId, secretAccessKey, sessionToken }: AwsKeys,
  now: Date,
): { username: string; password: string } {
  const { hostname, pathname } = new URL(href)
  const time = now.toISOString().replace(/[-:]|\.\d+Z$/g, '')
  const date = time.slice(0, 8)
  const scope = [date, region, 'codecommit', 'aws4_request']
  const request = ['GIT', pathname, '', `host:${hostname}`, '', 'host', ''].join('\n')
  const hashed = createHash('sha256').update(request).digest('hex')
  const text = [algorithm, time, scope.join('/'), hashed].join('\n')
  const signer = scope.reduce((key: Buffer | string, part) => hmac(key, part), `AWS4${secretAccessKey}`)
  return {
    username: sessionToken ? `${accessKeyId}%${sessionToken}` : accessKeyId,
    password: `${time}Z${hmac(signer, text).toString('hex')}`,
  }
}

function hmac(key: Buffer | string, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest()
}
