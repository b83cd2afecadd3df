import { spawn } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import type { ControlPlane } from '../e2e/control-plane/index.ts'
import { temporaryFolder } from '../e2e/tools/temporary.ts'

/** How a command ended. Warnings of the API server are in `stderr`. */
export interface Outcome {
  code: number | null
  stdout: string
  stderr: string
}

/** Runs the control plane's own kubectl as its administrator. */
export interface Kubectl extends AsyncDisposable {
  /** Resolves however the command ends; `input` is what `-f -` reads. */
  try(args: string[], input?: string): Promise<Outcome>
  /** The output; throws with the error output unless the command succeeds without a warning. */
  run(args: string[], input?: string): Promise<string>
}

/** Its cache of what the API offers goes to a folder of its own, which is removed with it. */
export async function makeKubectl({ kubectl, kubeconfig }: ControlPlane): Promise<Kubectl> {
  const cache = await temporaryFolder()
  const attempt = async (args: string[], input = ''): Promise<Outcome> => {
    const child = spawn(kubectl, [`--kubeconfig=${kubeconfig}`, `--cache-dir=${cache}`, ...args])
    // A command that does not read its input closes the pipe.
    child.stdin.on('error', () => {})
    child.stdin.end(input)
    const ended = new Promise<number | null>((resolve, reject) => child.on('close', resolve).on('error', reject))
    const [code, stdout, stderr] = await Promise.all([ended, text(child.stdout), text(child.stderr)])
    return { code, stdout, stderr }
  }
  return {
    try: attempt,
    async run(args, input) {
      const { code, stdout, stderr } = await attempt(args, input)
      if (code !== 0 || stderr !== '') throw new Error(`kubectl ${args.join(' ')}: exit ${code}: ${stderr}`)
      return stdout
    },
    [Symbol.asyncDispose]: () => rm(cache, { recursive: true, force: true }),
  }
}
