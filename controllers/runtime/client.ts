import type { Dispatcher } from 'undici'
import { abortableRequest } from './abortable-request.ts'
import { messageOf, ReconcileError } from './errors.ts'
import { apiPath, type Kind, type KubeObject, type ObjectKey } from './kind.ts'
import type { CredentialSource, Credentials } from './kube-config.ts'
import { apiRequests } from './metrics.ts'
import { readText } from './read-text.ts'

/** The API server refused. `reason` is that of its `Status` (`NotFound`, `Conflict`, `Forbidden`, …). `status` is 0 where it could not be reached. */
export class ApiError extends ReconcileError {
  readonly status: number
  constructor(status: number, reason: string, message: string, retryAfterMs?: number) {
    super(reason, message, { retryAfterMs })
    this.status = status
  }
}

/** A page of a list. `next` is the token of the following page. */
export interface Page<T> {
  items: T[]
  resourceVersion: string
  next: string | undefined
}

export interface Selection {
  /** Empty or absent: all namespaces. */
  namespace?: string | undefined
  labelSelector?: string | undefined
  /** E.g. `metadata.name=x`. Of watches alone. */
  fieldSelector?: string | undefined
}

type Query = Record<string, string | number | boolean | undefined>
type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** How long an answer may take to begin, in ms. */
const headersTimeoutMs = 30_000
const pageSize = 500

/** Typed access to the Kubernetes API over one connection pool. Writes carry the controller's own field manager. */
export class Client {
  readonly fieldManager: string
  readonly #credentials: CredentialSource

  constructor(credentials: CredentialSource, fieldManager: string) {
    this.#credentials = credentials
    this.fieldManager = fieldManager
  }

  /** The same connections under another field manager. */
  as(fieldManager: string): Client {
    return new Client(this.#credentials, fieldManager)
  }

  /** The object, or undefined where there is none. */
  async get<T extends KubeObject>(kind: Kind<T>, key: ObjectKey, signal?: AbortSignal): Promise<T | undefined> {
    try {
      return await this.#json<T>('GET', apiPath(kind, key.namespace, key.name), { signal })
    } catch (err) {
      if (isStatus(err, 404)) return undefined
      throw err
    }
  }

  /** One page of a list. */
  async page<T extends KubeObject>(
    kind: Kind<T>,
    selection: Selection,
    next?: string,
    signal?: AbortSignal,
  ): Promise<Page<T>> {
    const query = { labelSelector: selection.labelSelector, limit: pageSize, continue: next }
    const list = await this.#json<{ items?: T[]; metadata: { resourceVersion: string; continue?: string } }>(
      'GET',
      apiPath(kind, selection.namespace),
      { query, signal },
    )
    return {
      items: list.items ?? [],
      resourceVersion: list.metadata.resourceVersion,
      next: list.metadata.continue || undefined,
    }
  }

  /** All objects, page by page. */
  async list<T extends KubeObject>(kind: Kind<T>, selection: Selection = {}, signal?: AbortSignal): Promise<T[]> {
    const items: T[] = []
    let next: string | undefined
    do {
      const page = await this.page(kind, selection, next, signal)
      items.push(...page.items)
      next = page.next
    } while (next)
    return items
  }

  /** Opens a watch; the body holds one JSON event a line until the server or `signal` ends it. */
  async watch(
    kind: Kind,
    selection: Selection,
    resourceVersion: string,
    seconds: number,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData['body']> {
    const query = {
      watch: true,
      allowWatchBookmarks: true,
      labelSelector: selection.labelSelector,
      fieldSelector: selection.fieldSelector,
      resourceVersion,
      timeoutSeconds: seconds,
    }
    const response = await this.#send('GET', apiPath(kind, selection.namespace), { query, signal, watch: true })
    return response.body
  }

  async create<T extends KubeObject>(kind: Kind<T>, object: T, signal?: AbortSignal): Promise<T> {
    return this.#json('POST', apiPath(kind, object.metadata.namespace), {
      body: object,
      signal,
      query: this.#manager(),
    })
  }

  /** Server-side apply of `object` (a full statement of what this field manager wants), overriding other managers. */
  async apply<T extends KubeObject>(kind: Kind<T>, object: T, signal?: AbortSignal): Promise<T> {
    const path = apiPath(kind, object.metadata.namespace, object.metadata.name)
    const query = { ...this.#manager(), force: true }
    return this.#json('PATCH', path, { body: object, query, signal, contentType: 'application/apply-patch+yaml' })
  }

  /** JSON merge patch (RFC 7386) of an object or, with `subresource: 'status'`, of its status. */
  async patch<T extends KubeObject>(
    kind: Kind<T>,
    key: ObjectKey,
    patch: object,
    options: { subresource?: 'status'; signal?: AbortSignal | undefined } = {},
  ): Promise<T> {
    const path = apiPath(kind, key.namespace, key.name) + (options.subresource ? `/${options.subresource}` : '')
    return this.#json('PATCH', path, {
      body: patch,
      query: this.#manager(),
      signal: options.signal,
      contentType: 'application/merge-patch+json',
    })
  }

  /** Replaces an object; fails with 409 when `object.metadata.resourceVersion` is not the present one. */
  async replace<T extends KubeObject>(kind: Kind<T>, object: T, signal?: AbortSignal): Promise<T> {
    const path = apiPath(kind, object.metadata.namespace, object.metadata.name)
    return this.#json('PUT', path, { body: object, query: this.#manager(), signal })
  }

  /** Deletes the object; one that is already gone, or that is another one by now (`uid`), is fine. */
  async delete(kind: Kind, key: ObjectKey, uid?: string, signal?: AbortSignal): Promise<void> {
    const body = { propagationPolicy: 'Background', ...(uid && { preconditions: { uid } }) }
    try {
      await this.#json('DELETE', apiPath(kind, key.namespace, key.name), { body, signal })
    } catch (err) {
      if (isStatus(err, 404) || (uid && isStatus(err, 409))) return
      throw err
    }
  }

  #manager(): Query {
    return { fieldManager: this.fieldManager }
  }

  async #json<R>(method: Method, path: string, options: SendOptions): Promise<R> {
    const { body } = await this.#send(method, path, options)
    return JSON.parse(await readText(body)) as R
  }

  async #send(method: Method, path: string, options: SendOptions): Promise<Dispatcher.ResponseData> {
    const credentials = await this.#credentials()
    const send = async (by: Credentials) => {
      try {
        return await this.#sendOnce(by, method, path, options)
      } catch (err) {
        if (options.signal?.aborted) throw err
        throw new ApiError(0, 'ApiServerUnavailable', `${method} ${path}: ${messageOf(err)}`)
      }
    }
    let response = await send(credentials)
    if (response.statusCode === 401) {
      await response.body.dump()
      response = await send(await this.#credentials(true))
    }
    apiRequests.inc({ method, code: response.statusCode, host: credentials.server.replace(/^https?:\/\//, '') })
    if (response.statusCode >= 400) throw await apiErrorOf(response, method, path)
    return response
  }

  #sendOnce(
    credentials: Credentials,
    method: Method,
    path: string,
    options: SendOptions,
  ): Promise<Dispatcher.ResponseData> {
    const query = new URLSearchParams()
    for (const [name, value] of Object.entries(options.query ?? {}))
      if (value !== undefined && value !== '') query.set(name, String(value))
    const search = query.size ? `?${query.toString()}` : ''
    const request = {
      method,
      dispatcher: credentials.dispatcher,
      headers: {
        ...credentials.headers,
        'user-agent': this.fieldManager,
        accept: 'application/json',
        ...(options.body !== undefined && { 'content-type': options.contentType ?? 'application/json' }),
      },
      body: options.body === undefined ? null : JSON.stringify(options.body),
      // A watch that opens on a connection cut without notice must fail fast: the informer's promise is a cache that is right within 30 s.
      headersTimeout: options.watch ? 5_000 : headersTimeoutMs,
      bodyTimeout: options.watch ? 0 : headersTimeoutMs,
    }
    return abortableRequest(`${credentials.server}${path}${search}`, request, options.signal)
  }
}

interface SendOptions {
  query?: Query
  body?: object
  contentType?: string
  signal?: AbortSignal | undefined
  watch?: boolean
}

/** Whether a thrown value is the API server's refusal with this HTTP status. */
export function isStatus(err: unknown, status: number): boolean {
  return err instanceof ApiError && err.status === status
}

async function apiErrorOf(response: Dispatcher.ResponseData, method: string, path: string): Promise<ApiError> {
  const text = await readText(response.body)
  const retryAfter = Number(response.headers['retry-after'])
  const retryAfterMs = Number.isFinite(retryAfter) && retryAfter > 0 ? retryAfter * 1000 : undefined
  let status: { reason?: string; message?: string } = {}
  try {
    status = JSON.parse(text) as typeof status
  } catch {
    // not a Status object: a proxy's page or plain text; the code says enough
  }
  const message = status.message ?? `${method} ${path}: HTTP ${response.statusCode}`
  return new ApiError(response.statusCode, status.reason || `HTTP${response.statusCode}`, message, retryAfterMs)
}
