import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { findOnPath } from '../../tools/go.ts'
import { freePort } from '../../tools/port.ts'
import { startProcess, type SupervisedProcess } from '../../tools/process.ts'

/** One server that is measured. */
export interface Arm extends AsyncDisposable {
  name: string
  process: SupervisedProcess
  port: number
  /** The lag of its event loop in ms since it was asked last; undefined for servers without one. */
  lag(): Promise<{ p99Ms: number; maxMs: number } | undefined>
}

/** `apart`: the servers have a core of their own, the load another, so that only the server's cost counts; `shared`: all run wherever there is room. */
export type Cores = 'apart' | 'shared'

const coreOf = { server: '0', load: '1' }

/** A command for the core of its role, where they are apart, there are two of them and there is a `taskset`. */
export async function onCores(
  cores: Cores,
  role: keyof typeof coreOf,
  command: string,
  ...args: string[]
): Promise<[string, string[]]> {
  const taskset = cores === 'apart' && availableParallelism() > 1 ? await findOnPath('taskset') : undefined
  return taskset ? [taskset, ['-c', coreOf[role], command, ...args]] : [command, args]
}

/** All servers over the stored files in `folder`, started and listening. `helper` is the built Go program. */
export async function startArms(
  folder: string,
  helper: string,
  cores: Cores,
  peer: string | undefined,
): Promise<Arm[]> {
  const server = (command: string, ...args: string[]) => onCores(cores, 'server', command, ...args)
  const ours = [join(import.meta.dirname, 'server-process.ts'), folder]
  const one = { ...process.env, GOMAXPROCS: '1' }
  return [
    await startArm('ours', await server(process.execPath, ...ours)),
    await startArm('go', await server(helper, 'files', folder), one),
    ...(cores === 'shared' ? [await startArm('goAllCores', await server(helper, 'files', folder))] : []),
    await startArm('sendfile', await server(helper, 'sendfile', folder), one),
    await startArm('oursFromDisk', await server(process.execPath, ...ours, '0')),
    ...(peer === undefined ? [] : [await startPeer(peer, folder, server)]),
  ]
}

async function startArm(name: string, [command, args]: [string, string[]], env = process.env): Promise<Arm> {
  const child = await startProcess({ name, command, args, env })
  const port = Number((await child.waitForLine(/^listening on (\d+)$/))[1])
  const lagPort = /^lag on (\d+)$/m.exec(child.logs())?.[1]
  return armOf(name, child, port, async () => {
    if (lagPort === undefined) return undefined
    const answer = await fetch(`http://127.0.0.1:${lagPort}/`)
    return (await answer.json()) as { p99Ms: number; maxMs: number }
  })
}

/** `{storage}` and `{port}` in the command are replaced; it serves the folder under `/`. */
async function startPeer(
  peer: string,
  folder: string,
  server: (command: string, ...args: string[]) => Promise<[string, string[]]>,
): Promise<Arm> {
  const port = await freePort()
  const line = peer.replaceAll('{storage}', folder).replaceAll('{port}', String(port))
  const [command, args] = await server('/bin/sh', '-c', line)
  const child = await startProcess({ name: 'peer', command, args })
  await child.waitUntil(() =>
    fetch(`http://127.0.0.1:${port}/`).then(
      () => true,
      () => false, // not yet
    ),
  )
  return armOf('peer', child, port, () => Promise.resolve(undefined))
}

function armOf(name: string, child: SupervisedProcess, port: number, lag: Arm['lag']): Arm {
  return { name, process: child, port, lag, [Symbol.asyncDispose]: async () => void (await child.stop()) }
}
