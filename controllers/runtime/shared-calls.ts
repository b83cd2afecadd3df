interface Call<R> {
  result: Promise<R>
  abort: AbortController
  waiting: number
}

/**
 * Lets callers who want the same thing at the same time share one piece of work. It is aborted only when all of them have gone; who is aborted
 * earlier stops waiting at once, with its own signal's reason.
 */
export class SharedCalls<R> {
  readonly #calls = new Map<string, Call<R>>()

  async run(key: string, signal: AbortSignal, work: (signal: AbortSignal) => Promise<R>): Promise<R> {
    signal.throwIfAborted()
    const call = this.#calls.get(key) ?? this.#start(key, work)
    call.waiting++
    try {
      return await untilAborted(call.result, signal)
    } finally {
      if (--call.waiting === 0) {
        // Nobody may join what is about to end for lack of interest.
        if (this.#calls.get(key) === call) this.#calls.delete(key)
        call.abort.abort(signal.reason)
      }
    }
  }

  #start(key: string, work: (signal: AbortSignal) => Promise<R>): Call<R> {
    const abort = new AbortController()
    const result = work(abort.signal).finally(() => {
      if (this.#calls.get(key) === call) this.#calls.delete(key)
    })
    result.catch(() => undefined) // those who wait hear of it; perhaps nobody does any more
    const call: Call<R> = { result, abort, waiting: 0 }
    this.#calls.set(key, call)
    return call
  }
}

/** One at a time, in the order of the calls. */
export class Mutex {
  #last: Promise<void> = Promise.resolve()

  async run<R>(signal: AbortSignal, work: () => Promise<R>): Promise<R> {
    const before = this.#last
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#last = promise
    try {
      await untilAborted(before, signal)
      return await work()
    } finally {
      // Who gave up waiting must not let the next one overtake the one who still works.
      void before.then(resolve)
    }
  }
}

/** What `promise` gives, or the reason of `signal` where that aborts first. */
export async function untilAborted<R>(promise: Promise<R>, signal: AbortSignal): Promise<R> {
  signal.throwIfAborted()
  const { promise: abortion, reject } = Promise.withResolvers<never>()
  const stop = () => reject(signal.reason)
  signal.addEventListener('abort', stop, { once: true })
  try {
    return await Promise.race([promise, abortion])
  } finally {
    signal.removeEventListener('abort', stop)
  }
}
