import { z } from 'zod';
import { CLEAR_PORT, PORT } from './browser.js';
import { FAR_ADDRESS } from './link-command.js';
import type { Certificate } from './certificate.js';
import type { Arm, Congestion, ReferenceName, ServerSpec } from '../campaign/plan.js';
import { referenceCommand, isConfigurable, type Reference } from './reference-servers.js';
import type { ServerCounters } from '../samples/sample.js';

export interface Server {
  readonly pronghorn: string;
  readonly spec: ServerSpec;
  readonly arm: Arm;
  readonly pageFolder: string;
  /** Whether the page is a recording, with all its original hosts. */
  readonly isRecording: boolean;
  /** Address at the far end of the link. */
  readonly address: string;
  readonly certificate: Certificate;
  /** The installed program of a reference server. */
  readonly reference?: Reference;
  /**
   * How long the server waits for a client in any state: longer than the lab does, so that no
   * server time-out ends a load.
   */
  readonly serverTimeoutSeconds: number;
  /** Whether our server imitates the think times of the recorded one. */
  readonly thinkTimes: boolean;
  /** A separate folder for this load, for files that a server writes. */
  readonly folder: string;
  /** Folder for the qlog of our server's QUIC connections, for a watched load. */
  readonly qlogFolder?: string;
}

/**
 * Initial window in packets, as recommended by RFC 6928 and RFC 9002, section 7.2. It is the
 * default of the kernel's TCP; our server over QUIC has to be told.
 */
export const DEFAULT_INITIAL_WINDOW = 10;

/** Returns the port of an arm's page. */
export function portOf({ protocol }: Pick<Arm, 'protocol'>): number {
  return protocol === 'http' ? CLEAR_PORT : PORT;
}

/**
 * Returns the command that serves the page at the far end of the link, as one line that a shell
 * splits into words.
 */
export function serverCommand(server: Server): string {
  const { command } = server.spec;
  if (server.reference !== undefined) return shellWords(referenceCommand(server, server.reference));
  return command === undefined
    ? shellWords(ownCommand(server))
    : filledIn(command, placeholderValues(server));
}

function ownCommand(server: Server): string[] {
  const {
    pronghorn,
    spec,
    arm,
    pageFolder,
    isRecording,
    thinkTimes,
    address,
    certificate,
    qlogFolder,
  } = server;
  return [
    ...[pronghorn, isRecording ? 'replay' : 'serve', pageFolder],
    ...['--listen', `${address}:${PORT}`],
    ...(arm.protocol === 'http' ? ['--listen', `http://${address}:${CLEAR_PORT}`] : []),
    ...['--cert', certificate.certPath, '--key', certificate.keyPath],
    ...['--congestion', arm.congestion],
    ...['--initial-window', String(arm.initialWindow ?? DEFAULT_INITIAL_WINDOW)],
    ...['--early-data', arm.visit === 'early-data' ? 'safe' : 'off'],
    ...(thinkTimes ? ['--think-times'] : []),
    ...timeoutArguments(server),
    // When the load is over, no client waits for the rest.
    ...['--grace', '1', '--stats'],
    ...(qlogFolder === undefined ? [] : ['--qlog', qlogFolder]),
    ...spec.args,
  ];
}

/** The server's time-outs, by their names for `pronghorn serve --limit`. */
const TIMEOUTS = [
  'handshake_timeout',
  'idle_timeout',
  'head_timeout',
  'body_timeout',
  'response_timeout',
] as const;
const MIN_RATES = ['body_bytes_per_second', 'response_bytes_per_second'] as const;

/**
 * Returns longer time-outs. The safe defaults of at most half a minute would, on a bad link, end
 * loads over TCP, where one lost packet delays all responses, but not those over QUIC, and hide how
 * the browser copes with the link.
 */
function timeoutArguments({ serverTimeoutSeconds, spec }: Server): string[] {
  // The plan's own argument sets this limit too, and the limit would take precedence.
  const own = spec.args.some((each) => each.startsWith('--idle-timeout')) ? ['idle_timeout'] : [];
  const timeouts = TIMEOUTS.filter((name) => !own.includes(name)).map(
    (name) => `${name}=${serverTimeoutSeconds}s`,
  );
  return [...timeouts, ...MIN_RATES.map((name) => `${name}=0`)].flatMap((limit) => [
    '--limit',
    limit,
  ]);
}

/** Returns more than the lab waits for a load including its start and end. */
export function serverTimeout(timeoutSeconds: number): number {
  return timeoutSeconds + 60;
}

/** Returns the values of the placeholders in another server's command line. */
function placeholderValues({
  arm,
  pageFolder,
  address,
  certificate,
  serverTimeoutSeconds,
}: Server): Record<Placeholder, string> {
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
    timeout_seconds: String(serverTimeoutSeconds),
  };
}

export const PLACEHOLDERS = [
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
export type Placeholder = (typeof PLACEHOLDERS)[number];

const PLACEHOLDER = /\{([a-z_]+)\}/g;

/** Returns the first unknown placeholder of a command line. */
export function unknownPlaceholder(command: string): string | undefined {
  const named = [...command.matchAll(PLACEHOLDER)].map(([, place]) => place as string);
  return named.find((place) => !PLACEHOLDERS.includes(place as Placeholder));
}

/**
 * Returns whether a server receives the placeholder's value: our own always does, another one if
 * its command has the placeholder, and a reference server if it has a setting for it, and for this
 * controller if one is given.
 */
export function receivesPlaceholder(
  {
    command,
    reference,
  }: { readonly command?: string | undefined; readonly reference?: ReferenceName | undefined },
  place: Placeholder,
  congestion?: Congestion,
): boolean {
  if (reference !== undefined) return isConfigurable(reference, place, congestion);
  return (
    command === undefined || [...command.matchAll(PLACEHOLDER)].some(([, named]) => named === place)
  );
}

function filledIn(command: string, values: Record<Placeholder, string>): string {
  return command.replaceAll(PLACEHOLDER, (_, place: Placeholder) => shellWords([values[place]]));
}

/** Joins `words` into one text that a POSIX shell splits into them again. */
export function shellWords(words: readonly string[]): string {
  return words
    .map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`))
    .join(' ');
}

/** An access log line: time, client, protocol, method, path, status and more. */
const ACCESS_LINE = /^\S+ (\S+) (HTTP\/\S+) [A-Z]+ \S+ \d{3} /;

/**
 * Counts the requests of a server's access log per protocol. Other lines are ignored, and so are
 * those of clients at the server's own end, which are warm-ups.
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

/** Reads our server's final counters; undefined for another server and for one that was killed. */
export function readCounters(output: string): ServerCounters | undefined {
  const line = output.split('\n').findLast((each) => each.startsWith('{"tcp_accepted":'));
  const counted = stats.safeParse(line === undefined ? undefined : parsed(line));
  if (!counted.success) return undefined;
  const {
    tcp_accepted,
    quic_connected,
    tcp_resumed,
    quic_resumed,
    requests_early,
    quic_migrations,
  } = counted.data;
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
