import { pipeline } from 'node:stream/promises'
import { messageOf } from '../../runtime/errors.ts'
import { openTunnel } from '../../source/transport/tunnel.ts'

// A program of its own, which ssh starts: host and port are its arguments; where the proxy is and who asks is in the environment, which others cannot see.
const { OPENFLUX_PROXY_URL: url = '', OPENFLUX_PROXY_USERNAME, OPENFLUX_PROXY_PASSWORD } = process.env
const proxy = { url, username: OPENFLUX_PROXY_USERNAME ?? '', password: OPENFLUX_PROXY_PASSWORD ?? '' }
const [host = '', port = ''] = process.argv.slice(2)

try {
  const socket = await openTunnel(proxy, host, Number(port), AbortSignal.timeout(30_000))
  // However this ends, ssh tells it better; either side may be left open by the other.
  await Promise.allSettled([pipeline(process.stdin, socket), pipeline(socket, process.stdout)])
} catch (err) {
  process.stderr.write(`proxy: ${messageOf(err)}\n`)
  process.exitCode = 1
}
process.exit()
