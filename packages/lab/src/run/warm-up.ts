import { CLEAR_PORT, PORT } from './browser.js';
import { FAR_ADDRESS } from './link-command.js';
import { PROTOCOLS, type Arm, type Protocol, type ServerSpec } from '../campaign/plan.js';
import type { Reference } from './reference-servers.js';
import type { ServerCounters } from '../samples/sample.js';
import { shellWords } from './server-command.js';

/**
 * Protocol of a warm-up: a fresh server gets one connection over each protocol that it speaks
 * before a load, whichever the arm's is. The first handshake of a process is slower than all
 * others, over QUIC more so than for TLS over TCP.
 *
 * Warm-ups are made at the server's end, so they do not cross the link, by a client that is gone
 * before the browser starts, so the browser learns nothing. They request a path that does not
 * exist, so the browser's request for each file is the first.
 */
export type WarmProtocol = Exclude<Protocol, 'auto'>;

/** A warm-up and its result. */
export interface WarmUp {
  readonly protocol: WarmProtocol;
  readonly ok: boolean;
}

const PATH = '/pronghorn-lab-warm-up';
const HTTP_VERSION: Readonly<Record<WarmProtocol, string>> = {
  http: '1.1',
  h1: '1.1',
  h2: '2',
  h3: '3',
};

/** Time limit for an answer to a warm-up, including retries. */
const PATIENCE_SECONDS = 10;
/**
 * Time limit of one try. A plan's own server may listen for TCP before UDP, so there are several
 * tries.
 */
const TRY_SECONDS = 5;
/**
 * Time limit in each load for a protocol without an answer in the preflight: such a server may have
 * no HTTP/3 although the plan uses it.
 */
const SHORT_PATIENCE_SECONDS = 1;

/** Time after which the link ends a warm-up: more than it takes by itself on a busy machine. */
export const WARM_UP_SECONDS = PATIENCE_SECONDS + TRY_SECONDS + 3;

/** Returns the maximum time of so many warm-ups. */
export function warmUpsAtMost(count: number): number {
  return count * WARM_UP_SECONDS;
}

/** The protocols over which a campaign's servers have answered warm-ups, from the preflight on. */
export class WarmUpHistory {
  readonly #answered = new Map<string, Map<WarmProtocol, boolean>>();

  add(server: string, warmUps: readonly WarmUp[]): void {
    const known = this.#answered.get(server) ?? new Map<WarmProtocol, boolean>();
    for (const { protocol, ok } of warmUps) known.set(protocol, ok || known.get(protocol) === true);
    this.#answered.set(server, known);
  }

  /** Returns whether the server was tried over the protocol and never answered. */
  isSilent(server: string, protocol: WarmProtocol): boolean {
    return this.#answered.get(server)?.get(protocol) === false;
  }
}

/**
 * Returns the protocols over which a server is warmed, the same for all arms that use it. `arms`
 * are those of the plan.
 */
export function warmUpProtocols(
  { name, command }: ServerSpec,
  arms: readonly Arm[],
  reference: Reference | undefined,
  arm: Arm,
): WarmProtocol[] {
  const used = arms
    .filter(({ server }) => server === name)
    .flatMap(({ protocol }): WarmProtocol[] => (protocol === 'auto' ? ['h2', 'h3'] : [protocol]));
  // Ours has all of them; for another server only the plan tells.
  const spoken =
    reference?.protocols ?? (command === undefined ? (['h2', 'h3', ...used] as const) : used);
  // Without TLS the server listens only for the arms that need it.
  return PROTOCOLS.filter(
    (each): each is WarmProtocol => each !== 'auto' && spoken.includes(each),
  ).filter((each) => each !== 'http' || arm.protocol === 'http');
}

/** Returns the command lines in the order of the protocols. */
export function warmUpCommands(
  pronghorn: string,
  { name, command }: ServerSpec,
  protocols: readonly WarmProtocol[],
  host: string,
  warmed: WarmUpHistory,
): string[] {
  return protocols.map((protocol) => {
    const [scheme, port] = protocol === 'http' ? ['http', CLEAR_PORT] : ['https', PORT];
    const request = (seconds: number): string =>
      shellWords([
        ...[
          pronghorn,
          'get',
          '--http',
          HTTP_VERSION[protocol],
          '--no-verify',
          '--timeout',
          String(seconds),
        ],
        ...['--connect-to', `${FAR_ADDRESS}:${port}`, `${scheme}://${host}${PATH}`],
      ]);
    // Our server counts its connections, so there must be exactly one of each kind.
    if (command === undefined) return request(PATIENCE_SECONDS);
    if (warmed.isSilent(name, protocol)) return request(SHORT_PATIENCE_SECONDS);
    return shellWords(['sh', '-c', untilAnswered(request(TRY_SECONDS))]);
  });
}

/** Returns a shell script that repeats a command until it succeeds or the time limit is reached. */
function untilAnswered(command: string): string {
  const now = '$(date +%s)';
  return `end=$((${now} + ${PATIENCE_SECONDS})); until ${command}; do [ ${now} -lt $end ] || exit 1; sleep 0.25; done`;
}

/** Returns our server's counters for the browser alone. */
export function withoutWarmUps(
  counters: ServerCounters,
  warmUps: readonly WarmUp[],
): ServerCounters {
  const over = (isQuic: boolean): number =>
    warmUps.filter(({ protocol, ok }) => ok && (protocol === 'h3') === isQuic).length;
  return {
    ...counters,
    tcpConnections: Math.max(0, counters.tcpConnections - over(false)),
    quicConnections: Math.max(0, counters.quicConnections - over(true)),
  };
}

/** Describes the fault of a load before which its server did not answer. */
export function describeCold(protocols: readonly WarmProtocol[]): string {
  return `the server was cold: it did not answer before the load over ${protocols.join(', ')}`;
}
