/** How a host is reached: whom to trust, who to be, and what stands in between. */
export interface Transport {
  tls?: TlsOptions | undefined
  proxy?: Proxy | undefined
}

/** Texts in PEM. */
export interface TlsOptions {
  /** Trusted beside the roots that are trusted anyway. */
  ca?: string
  cert?: string
  key?: string
}

/** What stands between us and every host. */
export interface Proxy {
  /** `http:`, `https:` or `socks5:`, without credentials, path and slash at its end. */
  url: string
  username?: string
  password?: string
}
