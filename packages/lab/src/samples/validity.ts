import { kernelName } from '../run/link-command.js';
import {
  flowBytes,
  unaccountedPackets,
  unaskedDrops,
  type LinkReport,
} from '../run/link-report.js';
import { isAnswered } from '../load/expected.js';
import type { Arm } from '../campaign/plan.js';
import type { BrowserSide, DevToolsRequest, ServerCounters } from './sample.js';
import { portOf } from '../run/server-command.js';
import { describeCold, type WarmUp } from '../run/warm-up.js';

/** The evidence by which a load is judged. */
export interface Evidence {
  readonly arm: Arm;
  /** Minimum number of bytes of a complete load, if known. */
  readonly pageBytes: number | undefined;
  readonly browser: BrowserSide;
  /** Undefined for a page that was loaded from its own server. */
  readonly link: LinkReport | undefined;
  /** Host and port of such a page; requests to other hosts are not judged. */
  readonly origin: string | undefined;
  /** Counters of our own server without its warm-ups; undefined if it was killed. */
  readonly counters: ServerCounters | undefined;
  /**
   * Warm-ups of a server whose protocols are known; what other servers answer is known only at the
   * campaign's end.
   */
  readonly warmUps?: readonly WarmUp[];
}

/**
 * The browser's names for the protocols that an arm may use, both in `nextHopProtocol` and in the
 * developer tools.
 */
const BROWSER_NAMES: Readonly<Record<Arm['protocol'], readonly string[]>> = {
  http: ['http/1.1'],
  h1: ['http/1.1'],
  h2: ['h2'],
  h3: ['h3'],
  auto: ['h2', 'h3'],
};

/**
 * Returns the rules that a load breaks, each with the observed value; empty for a valid load.
 *
 * The rules check whether the load measured what its arm requires, never how fast it was. An
 * incomplete load is an outcome, and is valid if its recorded part satisfies the rules. No rule
 * requires something that is impossible for a load whose server never answered: otherwise failures
 * would count against one arm and be excluded from the other's figures.
 */
export function invalidReasons(evidence: Evidence): string[] {
  const rules = [
    congestionControl,
    slowStartAfterIdle,
    warmUp,
    timelineProtocol,
    developerToolsProtocol,
    newConnection,
    resumption,
    forbiddenBytes,
    expectedBytes,
    unaccounted,
    unasked,
  ];
  return rules.map((rule) => rule(evidence)).filter((reason) => reason !== undefined);
}

/** Returns whether the browser received a response over the protocol. */
export function wasAnsweredOver(
  protocol: Exclude<Arm['protocol'], 'auto'>,
  { requests }: BrowserSide,
): boolean {
  return requests.some(
    (request) => hasResponse(request) && BROWSER_NAMES[protocol].includes(request.protocol ?? ''),
  );
}

/** Returns whether the arm's rules apply to this URL. */
function isJudged(url: string, origin: string | undefined): boolean {
  return !url.startsWith('data:') && (origin === undefined || new URL(url).host === origin);
}

function timelineProtocol({ arm, browser, origin }: Evidence): string | undefined {
  const entries =
    browser.navigation === undefined
      ? browser.resources
      : [browser.navigation, ...browser.resources];
  // A request without a response has no protocol in the timeline; it is reported as incomplete
  // instead.
  const network = entries.filter(
    ({ name, nextHopProtocol }) => nextHopProtocol !== '' && isJudged(name, origin),
  );
  const other = network.filter(
    ({ nextHopProtocol }) => !BROWSER_NAMES[arm.protocol].includes(nextHopProtocol),
  );
  if (other.length === 0) return undefined;
  return `${other.length} of ${network.length} timeline entries have the protocol ${names(other.map((entry) => entry.nextHopProtocol))}`;
}

function developerToolsProtocol({ arm, browser, origin }: Evidence): string | undefined {
  const judged = browser.requests.filter(({ url }) => isJudged(url, origin));
  const other = judged.filter((request) => {
    const answered = isAnswered(request);
    return request.protocol === undefined
      ? answered
      : !BROWSER_NAMES[arm.protocol].includes(request.protocol);
  });
  if (other.length === 0) return undefined;
  const seen = names(other.map((request) => request.protocol ?? 'no protocol'));
  return `${other.length} of ${judged.length} requests used ${seen} according to the developer tools`;
}

/** Checks that a repeat visit does not reuse a connection of the first load. */
function newConnection({ arm, browser }: Evidence): string | undefined {
  const [document] = browser.requests;
  if (arm.visit === 'first' || document?.connectionReused !== true) return undefined;
  return 'the document reused a connection of the previous visit';
}

/**
 * Checks by our server's counters whether a session was resumed; the browser does not tell for
 * other servers. Without a document there may have been no handshake to resume in: that is an
 * outcome, over any protocol.
 */
function resumption({ arm, browser, counters }: Evidence): string | undefined {
  if (counters === undefined) return undefined;
  const resumed = counters.tcpResumed + counters.quicResumed;
  if (arm.visit !== 'first' && !browser.requests.some(hasResponse)) return undefined;
  if (arm.visit !== 'first') return resumed > 0 ? undefined : 'no session was resumed';
  // With several connections to a server, later ones may resume the session of the first.
  const full = counters.tcpConnections + counters.quicConnections - resumed;
  return full > 0 || resumed === 0 ? undefined : 'every session was resumed in a first visit';
}

/** Returns the transports that an arm may use. */
function transportsOf({ protocol }: Arm): ('tcp' | 'udp')[] {
  if (protocol === 'auto') return ['tcp', 'udp'];
  return [protocol === 'h3' ? 'udp' : 'tcp'];
}

function forbiddenBytes({ arm, link }: Evidence): string | undefined {
  if (link === undefined) return undefined;
  const right = transportsOf(arm);
  const port = portOf(arm);
  const wrong = (['tcp', 'udp'] as const).filter((transport) => !right.includes(transport));
  const crossed = wrong.flatMap((transport) => {
    const { up, down } = flowBytes(link, transport, port);
    return up + down === 0
      ? []
      : [`${up + down} bytes of ${transport.toUpperCase()} port ${port} crossed the link`];
  });
  return crossed[0];
}

function expectedBytes({ arm, pageBytes, browser, link }: Evidence): string | undefined {
  if (link === undefined) return undefined;
  const right = transportsOf(arm);
  const port = portOf(arm);
  const down = right.reduce((sum, transport) => sum + flowBytes(link, transport, port).down, 0);
  const received = browser.requests
    .filter(hasResponse)
    .reduce((sum, request) => sum + (request.encodedDataLength ?? 0), 0);
  const needed = browser.outcome === 'completed' ? Math.max(received, pageBytes ?? 0) : received;
  if (down > needed || (down === needed && needed === 0)) return undefined;
  const what = right.map((transport) => transport.toUpperCase()).join(' and ');
  return `${down} bytes of ${what} port ${port} crossed the link, fewer than the ${needed} bytes of the responses`;
}

function unasked({ link }: Evidence): string | undefined {
  if (link === undefined) return undefined;
  const drops = unaskedDrops(link.up) + unaskedDrops(link.down);
  return drops === 0
    ? undefined
    : `${drops} packets were lost at the link's devices, other than by its profile`;
}

function unaccounted({ link }: Evidence): string | undefined {
  if (link === undefined) return undefined;
  const packets = unaccountedPackets(link);
  return packets === 0
    ? undefined
    : `the link carried ${packets} packets that it could not assign to a flow`;
}

function congestionControl({ arm, link }: Evidence): string | undefined {
  // Over the machine's own network, the server uses its own controller and the client the kernel's.
  if (link === undefined) return undefined;
  const { near, far } = link.tcp_congestion;
  const asked = kernelName(arm.congestion);
  return near === asked && far === asked
    ? undefined
    : `TCP used ${near} at the client and ${far} at the server, not ${asked}`;
}

/** Checks the kernel's setting, which does not apply to QUIC. */
function slowStartAfterIdle({ arm, link }: Evidence): string | undefined {
  const settings = link?.tcp_settings;
  if (settings === undefined) return undefined;
  const asked = arm.slowStartAfterIdle === true ? '1' : '0';
  const [near, far] = [settings.near, settings.far].map(
    (end) => end.tcp_slow_start_after_idle ?? 'not set',
  );
  if (near === asked && far === asked) return undefined;
  return `tcp_slow_start_after_idle was ${near} at the client and ${far} at the server, not ${asked}`;
}

function warmUp({ warmUps }: Evidence): string | undefined {
  const failed = warmUps?.filter(({ ok }) => !ok).map(({ protocol }) => protocol) ?? [];
  return failed.length === 0 ? undefined : describeCold(failed);
}

/**
 * Returns whether a request received bytes from the network: an error page is the browser's own.
 */
function hasResponse({ error, status }: DevToolsRequest): boolean {
  return error === undefined && status !== undefined;
}

function names(values: readonly string[]): string {
  return [...new Set(values)].join(', ');
}
