/** The `code` of a system error, e.g. `ENOENT`; undefined for anything else. */
export function codeOf(err: unknown): string | undefined {
  return err instanceof Error && 'code' in err && typeof err.code === 'string' ? err.code : undefined
}
