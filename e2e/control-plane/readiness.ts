import { once } from 'node:events'
import { request } from 'node:https'
import { connect } from 'node:net'
import type { Credential } from '../tools/certificates.ts'
import { startProcess } from '../tools/process.ts'

/** How the starter itself talks to the API server; `authority` is a certificate, PEM. */
export interface Access {
  url: string
  authority: string
  client: Credential
}

const requestTimeoutMs = 5000

/** Whether a GET is answered with 200; a server that is not there (yet) is a plain no. */
export function answers(access: Access, path: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const { certificate: cert, key } = access.client
  const options = { ca: access.authority, cert, key, agent: false, timeout: requestTimeoutMs } as const
  const asked = request(new URL(path, access.url), options, (response) => {
    response.resume()
    resolve(response.statusCode === 200)
  })
  asked.on('timeout', () => asked.destroy(new Error('timeout')))
  asked.on('error', () => resolve(false)) // refused, reset or silent: not ready
  asked.end()
  return promise
}

/** Whether somebody listens on a Unix socket. */
export async function listens(socket: string): Promise<boolean> {
  const connection = connect(socket)
  try {
    await once(connection, 'connect')
    return true
  } catch {
    return false // not there, or nobody behind it
  } finally {
    connection.destroy()
  }
}

/** Applies files or folders of CRDs and waits until the API server serves them. Throws with what kubectl says. */
export async function installCrds(kubectl: string, kubeconfig: string, paths: readonly string[]): Promise<void> {
  const files = paths.flatMap((path) => ['--filename', path])
  // What it keeps in the home folder would outlive this server, and then be wrong for the next on the same port.
  const cluster = ['--kubeconfig', kubeconfig, '--cache-dir', `${kubeconfig}.cache`]
  await run(kubectl, [...cluster, 'apply', '--server-side', ...files])
  await run(kubectl, [...cluster, 'wait', '--for=condition=Established', ...files])
}

async function run(command: string, args: string[]): Promise<void> {
  const kubectl = await startProcess({ name: 'kubectl', command, args })
  const { code } = await kubectl.exited
  if (code !== 0) throw new Error(`kubectl ${args.slice(4).join(' ')} failed:\n${kubectl.logs(20)}`)
}
