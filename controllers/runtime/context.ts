import type { Logger } from 'pino'
import type { Client } from './client.ts'
import type { EventRecorder } from './events.ts'

/** What one pass over one object may use. */
export interface Context {
  client: Client
  events: EventRecorder
  /** Carries controller, namespace, name and reconcileID. Never log a secret: messages pass no redaction but your own. */
  log: Logger
  /** Aborted on shutdown, when leadership is lost, and when the object's timeout has passed. Every wait must end on it. */
  signal: AbortSignal
}
