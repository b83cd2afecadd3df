/** The code of a system or zlib error, e.g. `ENOENT`; '' where a thrown value has none. */
export function codeOf(err: unknown): string {
  return err instanceof Error && 'code' in err && typeof err.code === 'string' ? err.code : ''
}
