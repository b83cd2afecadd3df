import { messageOf, ReconcileError } from '../../runtime/errors.ts'
import type { Access } from '../access/access.ts'
import { gitEnvironment, type GitHome } from '../environment.ts'
import { aborted, gitFailure, sanitize } from '../failure.ts'
import { GitError, runProgram, startProgram, type GitOptions, type GitProcess } from '../git.ts'
import { ProtocolError, type Features, type RemoteRef } from '../protocol/advertisement.ts'
import { decodePackets } from '../protocol/packets.ts'
import { flushPacket, type Packet } from '../protocol/pkt-line.ts'
import { lsRefsRequest, readAdvertisement, readLsRefs } from '../protocol/ref-answers.ts'
import { defaultRefLimits } from '../protocol/remote.ts'
import type { GitConnection, RefLimits, RefQuery, Remote } from '../protocol/remote.ts'
import { sshAddressOf, type SshAddress } from './address.ts'
import { hostKeyAlgorithms } from './host-keys.ts'
import { prepareSsh, shellWord, type SshCall } from './options.ts'
import { isDenial, isKeyProblem } from './problem.ts'

/** The algorithms that ssh may use, in order; its own choice where there are none. */
export interface SshAlgorithms {
  kex?: readonly string[] | undefined
  hostKey?: readonly string[] | undefined
}

export interface SshRemoteOptions {
  home: GitHome
  limits?: RefLimits | undefined
  algorithms?: SshAlgorithms | undefined
}

/** A repository over ssh. A question is one connection: OpenSSH carries it, and our own client speaks the protocol within. */
export class SshRemote implements Remote {
  readonly url: string
  access: Access
  readonly #options: SshRemoteOptions
  readonly #address: SshAddress
  #features: Features | undefined
  #acceptedAtMs: number | undefined
  #hostKeyAlgorithms: Promise<string[]> | undefined

  /** `url` has been checked. */
  constructor(url: string, access: Access, options: SshRemoteOptions) {
    this.url = url
    this.access = access
    this.#options = options
    this.#address = sshAddressOf(url)
  }

  get features(): Features | undefined {
    return this.#features
  }

  async listRefs(query: RefQuery, signal: AbortSignal): Promise<RemoteRef[]> {
    const command = `git-upload-pack ${shellWord(this.#address.path)}`
    return await this.#run(command, signal, (args, options) => {
      const env = { ...options.env, GIT_PROTOCOL: 'version=2' }
      return this.#ask(startProgram('ssh', args, { ...options, env }), query)
    })
  }

  async greet(withinMs: number, signal: AbortSignal): Promise<void> {
    if (this.#acceptedAtMs !== undefined && performance.now() - this.#acceptedAtMs <= withinMs) return
    await this.listRefs({ prefixes: ['HEAD'], keep: () => true, enough: 1 }, signal)
  }

  /** Runs a command on the server, as `git-lfs-authenticate` is one; gives what it says. Throws what `listRefs` throws. */
  async command(words: readonly string[], signal: AbortSignal): Promise<Buffer> {
    // Quoted only where they must be: not every server has a shell that would take the quotes away.
    const command = words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : shellWord(word))).join(' ')
    const maxBytes = 64 * 1024
    return await this.#run(command, signal, (args, options) => runProgram('ssh', args, { ...options, maxBytes }))
  }

  forget(): void {
    this.#features = undefined
    this.#acceptedAtMs = undefined
  }

  async connect(home: GitHome): Promise<GitConnection> {
    const { options, variables, release } = await this.#prepare(home)
    const command = ['ssh', ...options].map(shellWord).join(' ')
    // Named, because git would otherwise call the command once more to find out.
    const ssh = { ...variables, GIT_SSH_COMMAND: command, GIT_SSH_VARIANT: 'ssh' }
    return { url: this.url, env: gitEnvironment(home, { protocols: 'ssh', variables: ssh }), release }
  }

  async #run<R>(
    command: string,
    signal: AbortSignal,
    run: (args: string[], options: GitOptions) => Promise<R>,
  ): Promise<R> {
    const { home } = this.#options
    const call = await this.#prepare(home)
    const env = { PATH: home.path, HOME: home.home, LC_ALL: 'C', ...call.variables }
    const options = { env, signal, secrets: this.access.secrets }
    try {
      return await run([...call.options, '--', this.#address.host, command], options)
    } catch (err) {
      // With a wrong passphrase ssh offers no key at all, and does not say so; ssh-keygen does.
      const unlock = () => runProgram('ssh-keygen', ['-y', '-f', call.identityFile], options)
      throw this.#explained(this.#isDenied(err) ? await unlock().then(() => err, asValue) : err, signal)
    } finally {
      await call.release()
    }
  }

  async #prepare(home: GitHome): Promise<SshCall> {
    const { proxy, ssh: identity } = this.access
    const { kex, hostKey } = this.#options.algorithms ?? {}
    if (!identity) throw keyFailure("failed to configure authentication options: there is no 'identity'")
    const address = this.#address
    // The same for ever: another known_hosts is another access.
    this.#hostKeyAlgorithms ??= hostKeyAlgorithms(identity.knownHosts, address, hostKey)
    const allowed = await this.#hostKeyAlgorithms.catch((err: unknown) => {
      throw keyFailure(`failed to configure authentication options: ${messageOf(err)}`, err)
    })
    const algorithms = { hostKeyAlgorithms: allowed, kexAlgorithms: kex }
    return await prepareSsh({ address, identity, proxy, ...algorithms, folder: home.run })
  }

  async #ask(ssh: GitProcess, query: RefQuery): Promise<RemoteRef[]> {
    const { maxAnswerBytes, maxRefs } = this.#options.limits ?? defaultRefLimits
    const packets = decodePackets(ssh.stdout.iterator({ destroyOnReturn: false }), maxAnswerBytes)
    try {
      const { features, refs } = await readAdvertisement(untilFlush(packets), query, maxRefs)
      if (features.version === 2) ssh.stdin.write(lsRefsRequest(query, features))
      const answer = features.version === 2 ? await readLsRefs(untilFlush(packets), query, maxRefs) : refs
      this.#features = features
      this.#acceptedAtMs = performance.now()
      await packets.return()
      await hangUp(ssh)
      return answer
    } catch (err) {
      // Who ends too early has a reason, and says it as its last word.
      if (!(err instanceof EndError)) ssh.kill()
      await ssh.ended.catch((reason: unknown) => {
        if (err instanceof EndError) throw reason
      })
      throw err
    }
  }

  #isDenied(err: unknown): boolean {
    return this.access.ssh?.passphrase !== undefined && err instanceof GitError && isDenial(err.message)
  }

  #explained(err: unknown, signal: AbortSignal): unknown {
    if (err instanceof ReconcileError) return err
    if (signal.aborted) return aborted(this.url, signal)
    if (!(err instanceof GitError || err instanceof ProtocolError || err instanceof RangeError)) return err
    const failure = gitFailure(this.url, sanitize(err.message, this.access.secrets), { cause: err })
    return isKeyProblem(err.message) ? keyFailure(failure.message, err) : failure
  }
}

/** The other side has closed the connection. */
class EndError extends ProtocolError {}

/** The packets up to the next flush, which the stream goes on behind. Throws an EndError where there is none. */
async function* untilFlush(packets: AsyncGenerator<Packet, void, undefined>): AsyncGenerator<Packet, void, undefined> {
  for (;;) {
    const { value, done } = await packets.next()
    if (done) throw new EndError('the answer ends too early')
    yield value
    if (value === 'flush') return
  }
}

function asValue(err: unknown): unknown {
  return err
}

const patienceMs = 2_000
const maxRestBytes = 16 * 1024

/** Says goodbye, so that the server's log shows no broken connection; whoever takes long over it, or still says much, is cut off. */
async function hangUp(ssh: GitProcess): Promise<void> {
  const timer = setTimeout(() => ssh.kill(), patienceMs)
  let received = 0
  ssh.stdout.on('data', (chunk: Buffer) => {
    if ((received += chunk.length) > maxRestBytes) ssh.kill()
  })
  ssh.stdout.on('error', () => undefined).resume()
  ssh.stdin.end(flushPacket)
  await ssh.ended.catch(() => undefined) // the answer has been complete
  clearTimeout(timer)
}

function keyFailure(message: string, cause?: unknown): ReconcileError {
  return new ReconcileError('AuthenticationFailed', message, { cause })
}
