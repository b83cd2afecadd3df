import assert from 'node:assert/strict'
import { createServer, type Server } from 'node:http'
import { clientFor, makeNamespace, sharedControlPlane } from '../../e2e/shared-control-plane.ts'
import { listen } from '../../e2e/tools/port.ts'
import type { Client } from './client.ts'
import { eventually } from './eventually.ts'
import { type CoreEvent, EventKind, KubeEventRecorder } from './events.ts'
import type { KubeObject } from './kind.ts'
import { makeLogger } from './log.ts'

describe('events on a real API server', () => {
  let client: Client
  let namespace: string
  let object: KubeObject

  beforeEach(async () => {
    client = clientFor((await sharedControlPlane()).kubeconfig)
    namespace = await makeNamespace(client)
    const annotations = { 'event.toolkit.fluxcd.io/team': 'blue', other: 'x' }
    object = {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'thing', namespace, uid: crypto.randomUUID(), annotations },
    }
  })

  const recorderFor = (address = '') => new KubeEventRecorder(client, 'test-controller', address, makeLogger('error'))
  const listed = (): Promise<CoreEvent[]> => client.list(EventKind, { namespace })

  it('are written where kubectl describe and flux events look for them', async () => {
    const recorder = recorderFor()
    recorder.emit(object, {
      severity: 'error',
      reason: 'GitOperationFailed',
      message: 'no',
      metadata: { 'source.toolkit.fluxcd.io/revision': 'r' },
    })
    await recorder.flush()
    const [event] = await listed()
    const { kind, name, uid } = event!.involvedObject
    assert.deepEqual({ kind, name, uid }, { kind: 'ConfigMap', name: 'thing', uid: object.metadata.uid })
    assert.deepEqual(
      [event!.type, event!.reason, event!.message, event!.count, event!.source.component],
      ['Warning', 'GitOperationFailed', 'no', 1, 'test-controller'],
    )
    assert.deepEqual(event!.metadata.annotations, {
      'event.toolkit.fluxcd.io/team': 'blue',
      'source.toolkit.fluxcd.io/revision': 'r',
    })
  })

  it('are counted when they repeat, and written anew when the old one has expired', async () => {
    const recorder = recorderFor()
    const emit = () => recorder.emit(object, { severity: 'trace', reason: 'Again', message: 'same' })
    for (let i = 0; i < 3; i++) emit()
    await recorder.flush()
    const [event] = await listed()
    assert.equal(event!.count, 3)
    await client.delete(EventKind, { namespace, name: event!.metadata.name })
    emit()
    await recorder.flush()
    assert.deepEqual(
      (await listed()).map(({ count }) => count),
      [1],
    )
  })

  it('are dropped beyond a burst for one object, and not for another', async () => {
    const recorder = recorderFor()
    for (let i = 0; i < 60; i++) recorder.emit(object, { severity: 'trace', reason: 'Quiet', message: `message ${i}` })
    for (let i = 0; i < 60; i++) recorder.emit(object, { severity: 'info', reason: 'Flood', message: `message ${i}` })
    const other = { ...object, metadata: { ...object.metadata, name: 'other', uid: crypto.randomUUID() } }
    recorder.emit(other, { severity: 'info', reason: 'Calm', message: 'once' })
    await recorder.flush()
    const events = await listed()
    assert.equal(events.filter(({ reason }) => reason === 'Quiet').length, 15)
    assert.equal(events.filter(({ reason }) => reason === 'Flood').length, 10)
    assert.equal(events.filter(({ reason }) => reason === 'Calm').length, 1)
  })

  describe('forwarded to a notification controller', () => {
    let server: Server
    let address: string
    let bodies: Record<string, unknown>[]

    beforeEach(async () => {
      bodies = []
      server = createServer((req, res) => {
        let text = ''
        req.on('data', (chunk: Buffer) => (text += chunk.toString()))
        req.on('end', () => {
          bodies.push(JSON.parse(text) as Record<string, unknown>)
          res.writeHead(429).end() // what it answers to a duplicate: no failure
        })
      })
      address = `http://127.0.0.1:${await listen(server)}/`
    })
    afterEach(() => void server.close())

    it('carry what alerts select on, and traces stay here', async () => {
      const recorder = recorderFor(address)
      recorder.emit(object, { severity: 'trace', reason: 'Quiet', message: 'q' })
      recorder.emit(object, {
        severity: 'info',
        reason: 'NewArtifact',
        message: 'stored',
        metadata: { 'source.toolkit.fluxcd.io/digest': 'd' },
      })
      await eventually(() => bodies.length === 1)
      const { involvedObject, timestamp, reportingInstance, ...rest } = bodies[0]!
      assert.deepEqual(rest, {
        severity: 'info',
        message: 'stored',
        reason: 'NewArtifact',
        metadata: { 'event.toolkit.fluxcd.io/team': 'blue', 'source.toolkit.fluxcd.io/digest': 'd' },
        reportingController: 'test-controller',
      })
      assert.deepEqual(
        { ...(involvedObject as object), uid: '' },
        { apiVersion: 'v1', kind: 'ConfigMap', namespace, name: 'thing', uid: '' },
      )
      assert.ok(timestamp && reportingInstance)
      await recorder.flush()
    })
  })
})
