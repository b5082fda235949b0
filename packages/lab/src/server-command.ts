import { z } from 'zod';
import { CLEAR_PORT, PORT } from './browser.js';
import { FAR_ADDRESS } from './link-command.js';
import type { Certificate } from './certificate.js';
import type { Arm, Congestion, ReferenceName, ServerSpec } from './plan.js';
import { referenceCommand, tells, type Reference } from './reference-servers.js';
import type { ServerCounters } from './sample.js';

export interface Server {
  readonly pronghorn: string;
  readonly spec: ServerSpec;
  readonly arm: Arm;
  readonly pageFolder: string;
  /** Whether that is a recording, with all the hosts that it was captured from. */
  readonly isRecording: boolean;
  /** The address at the far end of the link. */
  readonly address: string;
  readonly certificate: Certificate;
  /** Of a server that the lab knows how to start: where it is. */
  readonly reference?: Reference;
  /** How long the server waits for a client, whatever for: longer than the lab does, so that no time-out of a server ends a load. */
  readonly patienceSeconds: number;
  /** Whether our server answers as late as the recorded one did. */
  readonly thinkTimes: boolean;
  /** A folder of the load's own, for what a server wants to write. */
  readonly folder: string;
  /** Where our server writes what its QUIC connections do, of a load that is watched. */
  readonly qlogFolder?: string;
}

/** Packets, as RFC 6928 and RFC 9002, section 7.2, recommend. The kernel's TCP has them by itself, and our server over QUIC if told. */
export const DEFAULT_INITIAL_WINDOW = 10;

/** The port at which an arm's page is. */
export function portOf({ protocol }: Pick<Arm, 'protocol'>): number {
  return protocol === 'http' ? CLEAR_PORT : PORT;
}

/** The command that serves the page at the far end of the link, as one line that splits into words as a shell does. */
export function serverCommand(server: Server): string {
  const { command } = server.spec;
  if (server.reference !== undefined) return shellWords(referenceCommand(server, server.reference));
  return command === undefined ? shellWords(ownCommand(server)) : filledIn(command, placesOf(server));
}

function ownCommand(server: Server): string[] {
  const { pronghorn, spec, arm, pageFolder, isRecording, thinkTimes, address, certificate, qlogFolder } = server;
  return [
    ...[pronghorn, isRecording ? 'replay' : 'serve', pageFolder],
    ...['--listen', `${address}:${PORT}`],
    ...(arm.protocol === 'http' ? ['--listen', `http://${address}:${CLEAR_PORT}`] : []),
    ...['--cert', certificate.certPath, '--key', certificate.keyPath],
    ...['--congestion', arm.congestion],
    ...['--initial-window', String(arm.initialWindow ?? DEFAULT_INITIAL_WINDOW)],
    ...['--early-data', arm.visit === 'early-data' ? 'safe' : 'off'],
    ...(thinkTimes ? ['--think-times'] : []),
    ...patience(server),
    // When the load is over nobody waits for what was not fetched.
    ...['--grace', '1', '--stats'],
    ...(qlogFolder === undefined ? [] : ['--qlog', qlogFolder]),
    ...spec.args,
  ];
}

/** The server's time-outs, by the names that `pronghorn serve --limit` has for them. */
const TIMEOUTS = ['handshake_timeout', 'idle_timeout', 'head_timeout', 'body_timeout', 'response_timeout'] as const;
const LEAST_RATES = ['body_bytes_per_second', 'response_bytes_per_second'] as const;

/**
 * The safe defaults are of half a minute and less. On a bad link they end loads over TCP, where one lost packet holds up all
 * responses, and not those over QUIC: what the browser makes of the link would not be seen.
 */
function patience({ patienceSeconds, spec }: Server): string[] {
  // It is a limit too, which would go before the plan's own argument.
  const own = spec.args.some((each) => each.startsWith('--idle-timeout')) ? ['idle_timeout'] : [];
  const timeouts = TIMEOUTS.filter((name) => !own.includes(name)).map((name) => `${name}=${patienceSeconds}s`);
  return [...timeouts, ...LEAST_RATES.map((name) => `${name}=0`)].flatMap((limit) => ['--limit', limit]);
}

/** More than the lab waits for a load and for what is around it. */
export function patienceFor(timeoutSeconds: number): number {
  return timeoutSeconds + 60;
}

/** What stands in braces in another server's command line. */
function placesOf({ arm, pageFolder, address, certificate, patienceSeconds }: Server): Record<Place, string> {
  return {
    page: pageFolder,
    address,
    port: String(PORT),
    clear_port: String(CLEAR_PORT),
    cert: certificate.certPath,
    key: certificate.keyPath,
    congestion: arm.congestion,
    initial_window: String(arm.initialWindow ?? DEFAULT_INITIAL_WINDOW),
    early_data: arm.visit === 'early-data' ? 'on' : 'off',
    timeout_seconds: String(patienceSeconds),
  };
}

export const PLACES = [
  'page',
  'address',
  'port',
  'clear_port',
  'cert',
  'key',
  'congestion',
  'initial_window',
  'early_data',
  'timeout_seconds',
] as const;
export type Place = (typeof PLACES)[number];

const PLACE = /\{([a-z_]+)\}/g;

/** The first place of a command line that has no meaning. */
export function unknownPlace(command: string): string | undefined {
  const named = [...command.matchAll(PLACE)].map(([, place]) => place as string);
  return named.find((place) => !PLACES.includes(place as Place));
}

/**
 * Whether a server is told what stands for the place: our own always is, another one where its command has the place, and a
 * reference server where it has a setting for it, and for this controller, if one is given.
 */
export function hasPlace(
  { command, reference }: { readonly command?: string | undefined; readonly reference?: ReferenceName | undefined },
  place: Place,
  congestion?: Congestion,
): boolean {
  if (reference !== undefined) return tells(reference, place, congestion);
  return command === undefined || [...command.matchAll(PLACE)].some(([, named]) => named === place);
}

function filledIn(command: string, values: Record<Place, string>): string {
  return command.replaceAll(PLACE, (_, place: Place) => shellWords([values[place]]));
}

/** One text that splits into `words` again by the rules of a POSIX shell. */
export function shellWords(words: readonly string[]): string {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(' ');
}

/** An access log line: time, client, protocol, method, path, status and more. */
const ACCESS_LINE = /^\S+ (\S+) (HTTP\/\S+) [A-Z]+ \S+ \d{3} /;

/**
 * Counts the requests of a server's access log per protocol. Lines of other kinds are passed over, and so are those of clients
 * at the server's own end, which are warm-ups.
 */
export function countRequests(output: string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const line of output.split('\n')) {
    const [, client, protocol] = ACCESS_LINE.exec(line) ?? [];
    if (protocol !== undefined && client?.startsWith(`${FAR_ADDRESS}:`) === false)
      counts[protocol] = (counts[protocol] ?? 0) + 1;
  }
  return counts;
}

/** What our server counted until its end, or undefined for another server and for one that was killed. */
export function readCounters(output: string): ServerCounters | undefined {
  const line = output.split('\n').findLast((each) => each.startsWith('{"tcp_accepted":'));
  const counted = stats.safeParse(line === undefined ? undefined : parsed(line));
  if (!counted.success) return undefined;
  const { tcp_accepted, quic_connected, tcp_resumed, quic_resumed, requests_early, quic_migrations } = counted.data;
  return {
    tcpConnections: tcp_accepted,
    quicConnections: quic_connected,
    tcpResumed: tcp_resumed,
    quicResumed: quic_resumed,
    earlyRequests: requests_early,
    quicMigrations: quic_migrations,
  };
}

const stats = z.looseObject({
  tcp_accepted: z.number(),
  quic_connected: z.number(),
  tcp_resumed: z.number(),
  quic_resumed: z.number(),
  requests_early: z.number(),
  quic_migrations: z.number(),
});

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
