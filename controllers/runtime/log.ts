import { pino, type Logger } from 'pino'

export type { Logger } from 'pino'

/** Levels as Flux's `--log-level` has them. */
export const logLevels = ['trace', 'debug', 'info', 'error'] as const
export type LogLevel = (typeof logLevels)[number]

/** Encodings as Flux's `--log-encoding` has them. */
export const logEncodings = ['json', 'console'] as const
export type LogEncoding = (typeof logEncodings)[number]

/** A logger that writes one JSON object a line to stderr, with the keys that `flux logs` reads: `ts`, `level` as a word, `msg`. */
export function makeLogger(level: LogLevel, encoding: LogEncoding = 'json'): Logger {
  const destination = pino.destination({ dest: 2, sync: true })
  return pino(
    {
      level,
      base: null,
      messageKey: 'msg',
      errorKey: 'error',
      timestamp: () => `,"ts":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    encoding === 'console' ? { write: (line: string) => destination.write(consoleLine(line)) } : destination,
  )
}

/** `ts level msg {rest}` with tabs between, for people at a terminal. */
function consoleLine(json: string): string {
  const { ts, level, msg, ...rest } = JSON.parse(json) as Record<string, unknown>
  const fields = Object.keys(rest).length ? `\t${JSON.stringify(rest)}` : ''
  return `${String(ts)}\t${String(level).toUpperCase()}\t${String(msg)}${fields}\n`
}
