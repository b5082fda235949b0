import { PORT } from './browser.js';
import type { Certificate } from './certificate.js';
import type { Congestion } from './plan.js';

export interface Server {
  readonly pronghorn: string;
  readonly pageFolder: string;
  /** The address at the far end of the link. */
  readonly address: string;
  readonly certificate: Certificate;
  readonly congestion: Congestion;
}

/** The command that serves the page at the far end of the link. */
export function serverCommand({ pronghorn, pageFolder, address, certificate, congestion }: Server): string[] {
  return [
    pronghorn,
    'serve',
    pageFolder,
    ...['--listen', `${address}:${PORT}`],
    ...['--cert', certificate.certPath, '--key', certificate.keyPath],
    ...['--congestion', congestion],
    // When the load is over nobody waits for what was not fetched.
    ...['--grace', '1'],
  ];
}

/** An access log line: time, client, protocol, method, path, status and more. */
const ACCESS_LINE = /^\S+ \S+ (HTTP\/\S+) [A-Z]+ \S+ \d{3} /;

/** Counts the requests of a server's access log per protocol. Lines of other kinds are passed over. */
export function countRequests(output: string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const line of output.split('\n')) {
    const protocol = ACCESS_LINE.exec(line)?.[1];
    if (protocol !== undefined) counts[protocol] = (counts[protocol] ?? 0) + 1;
  }
  return counts;
}
