/** What is known of one stored archive; the wire fields of `status.artifact` but for the url, which depends on who serves it. */
export interface StoredArtifact {
  /** `<kind>/<namespace>/<name>/<file>`, relative to the storage root, always with `/`. */
  path: string
  revision: string
  /** `<algorithm>:<hex>` of the stored file. */
  digest: string
  /** Size of the stored file in bytes. */
  size: number
  /** RFC 3339, UTC; when this became the current one. */
  lastUpdateTime: string
  metadata?: Record<string, string>
}
