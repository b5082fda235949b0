import { CLEAR_PORT, PORT } from './browser.js';
import { FAR_ADDRESS } from './link-command.js';
import { PROTOCOLS, type Arm, type Protocol, type ServerSpec } from './plan.js';
import type { Reference } from './reference-servers.js';
import type { ServerCounters } from './sample.js';
import { shellWords } from './server-command.js';

/**
 * The connections that a fresh server has before a load: one for each protocol that it speaks, whichever the arm's is. The first
 * handshake of a process is slower than all others, and that of QUIC more so than that of TLS over TCP.
 *
 * They are made at the server's end, so that nothing of them crosses the link, by a client that is gone before the browser
 * starts: it has learned nothing of them. What they ask for is not there, so that of each file the browser's request is the first.
 */
export type WarmProtocol = Exclude<Protocol, 'auto'>;

/** One of them, and how it ended. */
export interface WarmUp {
  readonly protocol: WarmProtocol;
  readonly ok: boolean;
}

const PATH = '/pronghorn-lab-warm-up';
const HTTP_VERSION: Readonly<Record<WarmProtocol, string>> = { http: '1.1', h1: '1.1', h2: '2', h3: '3' };

/** That of a server of which it is known what it speaks has to come about. */
const PATIENCE_SECONDS = 10;
/** Another one may have no HTTP/3 although a plan tries it, and then each load waits so long. */
const PATIENCE_WITH_COMMANDS_SECONDS = 1;

/** What a server is warmed over: the same for all arms that use it. `arms` are those of the plan. */
export function warmUpProtocols(
  { name, command }: ServerSpec,
  arms: readonly Arm[],
  reference: Reference | undefined,
  arm: Arm,
): WarmProtocol[] {
  const used = arms
    .filter(({ server }) => server === name)
    .flatMap(({ protocol }): WarmProtocol[] => (protocol === 'auto' ? ['h2', 'h3'] : [protocol]));
  // Ours has all of them, of another one the plan alone tells which it has.
  const spoken = reference?.protocols ?? (command === undefined ? (['h2', 'h3', ...used] as const) : used);
  // In clear it listens only for the arms that need it.
  return PROTOCOLS.filter((each): each is WarmProtocol => each !== 'auto' && spoken.includes(each)).filter(
    (each) => each !== 'http' || arm.protocol === 'http',
  );
}

/** The command lines, in the order of the protocols. */
export function warmUpCommands(
  pronghorn: string,
  { command }: ServerSpec,
  protocols: readonly WarmProtocol[],
  host: string,
): string[] {
  const patience = command === undefined ? PATIENCE_SECONDS : PATIENCE_WITH_COMMANDS_SECONDS;
  return protocols.map((protocol) => {
    const [scheme, port] = protocol === 'http' ? ['http', CLEAR_PORT] : ['https', PORT];
    return shellWords([
      ...[pronghorn, 'get', '--http', HTTP_VERSION[protocol], '--no-verify', '--timeout', String(patience)],
      ...['--connect-to', `${FAR_ADDRESS}:${port}`, `${scheme}://${host}${PATH}`],
    ]);
  });
}

/** What our server counted for the browser alone. */
export function withoutWarmUps(counters: ServerCounters, warmUps: readonly WarmUp[]): ServerCounters {
  const over = (isQuic: boolean): number =>
    warmUps.filter(({ protocol, ok }) => ok && (protocol === 'h3') === isQuic).length;
  return {
    ...counters,
    tcpConnections: Math.max(0, counters.tcpConnections - over(false)),
    quicConnections: Math.max(0, counters.quicConnections - over(true)),
  };
}
