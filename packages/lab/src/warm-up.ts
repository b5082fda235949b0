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

/** How long a server may take until it has answered one, retries included. */
const PATIENCE_SECONDS = 10;
/** One try. A server of a plan's own may listen for TCP before it does for UDP, so that there are several. */
const TRY_SECONDS = 5;
/** How long each load waits for what did not come in the preflight: such a server may have no HTTP/3 although a plan tries it. */
const SHORT_PATIENCE_SECONDS = 1;

/** After so long the link ends one: later than it ends by itself on a machine that is busy. */
export const WARM_UP_SECONDS = PATIENCE_SECONDS + TRY_SECONDS + 3;

/** The most that a number of them takes. */
export function warmUpsAtMost(count: number): number {
  return count * WARM_UP_SECONDS;
}

/** Which servers of a campaign have answered over which protocols when they were warmed, from the preflight on. */
export class Warmed {
  readonly #answered = new Map<string, Map<WarmProtocol, boolean>>();

  add(server: string, warmUps: readonly WarmUp[]): void {
    const known = this.#answered.get(server) ?? new Map<WarmProtocol, boolean>();
    for (const { protocol, ok } of warmUps) known.set(protocol, ok || known.get(protocol) === true);
    this.#answered.set(server, known);
  }

  /** Whether the server was tried over the protocol and never answered. */
  isSilent(server: string, protocol: WarmProtocol): boolean {
    return this.#answered.get(server)?.get(protocol) === false;
  }
}

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
  { name, command }: ServerSpec,
  protocols: readonly WarmProtocol[],
  host: string,
  warmed: Warmed,
): string[] {
  return protocols.map((protocol) => {
    const [scheme, port] = protocol === 'http' ? ['http', CLEAR_PORT] : ['https', PORT];
    const request = (seconds: number): string =>
      shellWords([
        ...[pronghorn, 'get', '--http', HTTP_VERSION[protocol], '--no-verify', '--timeout', String(seconds)],
        ...['--connect-to', `${FAR_ADDRESS}:${port}`, `${scheme}://${host}${PATH}`],
      ]);
    // Ours counts its connections, so that there is one of each kind.
    if (command === undefined) return request(PATIENCE_SECONDS);
    if (warmed.isSilent(name, protocol)) return request(SHORT_PATIENCE_SECONDS);
    return shellWords(['sh', '-c', untilAnswered(request(TRY_SECONDS))]);
  });
}

/** A shell script that repeats a command until it succeeds or the patience is at its end. */
function untilAnswered(command: string): string {
  const now = '$(date +%s)';
  return `end=$((${now} + ${PATIENCE_SECONDS})); until ${command}; do [ ${now} -lt $end ] || exit 1; sleep 0.25; done`;
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

/** What is wrong with a load before which its server did not answer. */
export function coldInWords(protocols: readonly WarmProtocol[]): string {
  return `the server was cold: it did not answer before the load over ${protocols.join(', ')}`;
}
