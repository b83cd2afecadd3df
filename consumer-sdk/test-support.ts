import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import { Header } from 'tar'
import type { Artifact } from '../controllers/artifact/types.ts'
import type { OwnerReference } from '../controllers/runtime/kind.ts'

/** A member of a hand-made archive; everything may be wrong on purpose. For tests. */
export interface Member {
  path: string
  /** Defaults to an ordinary file. */
  type?: Header['type']
  content?: string | Buffer
  mode?: number
  linkpath?: string
  /** What the header says where it lies about the content. */
  size?: number
}

/** The blocks of one member. */
export function tarMember({ path, type = 'File', content = '', mode = 0o644, linkpath, size }: Member): Buffer {
  const body = Buffer.from(content)
  const header = new Header({
    path,
    type,
    mode,
    size: size ?? body.length,
    ...(linkpath !== undefined && { linkpath }),
  })
  const block = Buffer.alloc(512)
  header.encode(block)
  // Folders and links have no size by themselves.
  return Buffer.concat([block, body, Buffer.alloc(-body.length & 511)])
}

/** A tar archive with its end marker. */
export function tarOf(...members: (Member | Buffer)[]): Buffer {
  const blocks = members.map((member) => (Buffer.isBuffer(member) ? member : tarMember(member)))
  return Buffer.concat([...blocks, Buffer.alloc(1024)])
}

/** A pax extended header from raw bytes. */
export function paxHeader(
  records: string | Buffer,
  type: 'ExtendedHeader' | 'GlobalExtendedHeader' = 'ExtendedHeader',
): Buffer {
  return tarMember({ path: 'PaxHeader/x', type, content: records })
}

/** One pax record with the right length in front. */
export function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`
  let length = Buffer.byteLength(rest)
  while (Buffer.byteLength(`${length}${rest}`) !== length) length = Buffer.byteLength(`${length}${rest}`)
  return `${length}${rest}`
}

/** The same bytes as a gzip of several members, as a chain of cached pieces is. */
export function gzipMembers(bytes: Buffer, memberBytes = 700): Buffer {
  const members: Buffer[] = []
  for (let at = 0; at < bytes.length; at += memberBytes) members.push(gzipSync(bytes.subarray(at, at + memberBytes)))
  return Buffer.concat(members)
}

export function sha256(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`
}

/** A server on the loopback, for tests. */
export interface TestServer {
  url: string
  requests: number
  stop(): Promise<void>
}

export async function serve(
  handler: (req: IncomingMessage, res: ServerResponse, count: number) => void,
): Promise<TestServer> {
  const server = createServer((req, res) => handler(req, res, ++running.requests))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  assert.ok(address && typeof address === 'object')
  const running: TestServer = {
    url: `http://127.0.0.1:${address.port}`,
    requests: 0,
    async stop() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
  return running
}

/** An owner reference as Kubernetes has it. */
export function ownerOf(
  kind: string,
  name: string,
  apiVersion = 'source.toolkit.fluxcd.io/v1',
  uid = `uid-of-${name}`,
): OwnerReference {
  return { apiVersion, kind, name, uid }
}

/** A whole Artifact in namespace `apps`. */
export function artifactOf(name: string, owners: OwnerReference[], spec: Partial<Artifact['spec']> = {}): Artifact {
  return {
    metadata: { name, namespace: 'apps', ownerReferences: owners },
    spec: {
      url: `http://server.example/${name}.tar.gz`,
      revision: 'main@sha1:1234',
      digest: sha256(Buffer.from(name)),
      lastUpdateTime: '2026-01-02T03:04:05Z',
      ...spec,
    },
  }
}
