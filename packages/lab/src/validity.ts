import { kernelName } from './link-command.js';
import { flowBytes, unaccountedPackets, unaskedDrops, type LinkReport } from './link-report.js';
import { isAnswered } from './load/expected.js';
import type { Arm } from './plan.js';
import type { BrowserSide, DevToolsRequest, ServerCounters } from './sample.js';
import { portOf } from './server-command.js';
import { coldInWords, type WarmUp } from './warm-up.js';

/** What a load has to be judged by. */
export interface Evidence {
  readonly arm: Arm;
  /** Bytes that a complete load has at least, when known. */
  readonly pageBytes: number | undefined;
  readonly browser: BrowserSide;
  /** Undefined for a page that was loaded where it is. */
  readonly link: LinkReport | undefined;
  /** The host and port of such a page: what it fetches from others is theirs to decide. */
  readonly origin: string | undefined;
  /** Of our own server, unless it was killed; without its warm-ups. */
  readonly counters: ServerCounters | undefined;
  /** Of a server of which it is known what it speaks; what others answer at all is known at the campaign's end. */
  readonly warmUps?: readonly WarmUp[];
}

/** The browser's names for the protocols that an arm may use, in `nextHopProtocol` and in the developer tools alike. */
const BROWSER_NAMES: Readonly<Record<Arm['protocol'], readonly string[]>> = {
  http: ['http/1.1'],
  h1: ['http/1.1'],
  h2: ['h2'],
  h3: ['h3'],
  auto: ['h2', 'h3'],
};

/**
 * The rules that a load breaks, each with what was seen; none for a valid load.
 *
 * The rules look at whether the load measured what its arm asked for, never at how fast it was. A load that did not
 * complete is an outcome, and valid if what there was of it kept the rules. None asks for something that a load whose server
 * never answered cannot have: otherwise failures would count against one arm, and be left out of the other's figures.
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

/** Whether the browser got an answer over the protocol. */
export function wasAnsweredOver(protocol: Exclude<Arm['protocol'], 'auto'>, { requests }: BrowserSide): boolean {
  return requests.some((request) => hasResponse(request) && BROWSER_NAMES[protocol].includes(request.protocol ?? ''));
}

/** Whether the arm's rules are for this URL. */
function isJudged(url: string, origin: string | undefined): boolean {
  return !url.startsWith('data:') && (origin === undefined || new URL(url).host === origin);
}

function timelineProtocol({ arm, browser, origin }: Evidence): string | undefined {
  const entries = browser.navigation === undefined ? browser.resources : [browser.navigation, ...browser.resources];
  // A request without a response has no protocol in the timeline; it shows as incomplete instead.
  const network = entries.filter(({ name, nextHopProtocol }) => nextHopProtocol !== '' && isJudged(name, origin));
  const other = network.filter(({ nextHopProtocol }) => !BROWSER_NAMES[arm.protocol].includes(nextHopProtocol));
  if (other.length === 0) return undefined;
  return `${other.length} of ${network.length} timeline entries say ${names(other.map((entry) => entry.nextHopProtocol))}`;
}

function developerToolsProtocol({ arm, browser, origin }: Evidence): string | undefined {
  const judged = browser.requests.filter(({ url }) => isJudged(url, origin));
  const other = judged.filter((request) => {
    const answered = isAnswered(request);
    return request.protocol === undefined ? answered : !BROWSER_NAMES[arm.protocol].includes(request.protocol);
  });
  if (other.length === 0) return undefined;
  const seen = names(other.map((request) => request.protocol ?? 'no protocol'));
  return `${other.length} of ${judged.length} requests used ${seen} by the developer tools`;
}

/** A visit after another one must not find a connection of the one before. */
function newConnection({ arm, browser }: Evidence): string | undefined {
  const [document] = browser.requests;
  if (arm.visit === 'first' || document?.connectionReused !== true) return undefined;
  return 'the document came over a connection of the visit before';
}

/**
 * Whether a session was resumed, as our server says; of another one the browser tells nothing. Where no document came there may
 * have been no handshake to resume in: that is an outcome, whichever protocol it is of.
 */
function resumption({ arm, browser, counters }: Evidence): string | undefined {
  if (counters === undefined) return undefined;
  const resumed = counters.tcpResumed + counters.quicResumed;
  if (arm.visit !== 'first' && !browser.requests.some(hasResponse)) return undefined;
  if (arm.visit !== 'first') return resumed > 0 ? undefined : 'no session was resumed';
  // Of several connections to a server the later ones may resume what the first one brought.
  const full = counters.tcpConnections + counters.quicConnections - resumed;
  return full > 0 || resumed === 0 ? undefined : 'each session was resumed, in a first visit';
}

/** The transports that an arm may use. */
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
    return up + down === 0 ? [] : [`${up + down} bytes of ${transport.toUpperCase()} port ${port} crossed the link`];
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
  return `${down} bytes of ${what} port ${port} crossed the link, fewer than the ${needed} of the responses`;
}

function unasked({ link }: Evidence): string | undefined {
  if (link === undefined) return undefined;
  const drops = unaskedDrops(link.up) + unaskedDrops(link.down);
  return drops === 0 ? undefined : `${drops} packets vanished at the link's devices, not by its profile`;
}

function unaccounted({ link }: Evidence): string | undefined {
  if (link === undefined) return undefined;
  const packets = unaccountedPackets(link);
  return packets === 0 ? undefined : `the link carried ${packets} packets of flows that it did not list`;
}

function congestionControl({ arm, link }: Evidence): string | undefined {
  // Over the machine's own network the server's controller is its own, and the client's the kernel's.
  if (link === undefined) return undefined;
  const { near, far } = link.tcp_congestion;
  const asked = kernelName(arm.congestion);
  return near === asked && far === asked
    ? undefined
    : `TCP had ${near} at the client and ${far} at the server, not ${asked}`;
}

/** The kernel's switch, which QUIC does not have. */
function slowStartAfterIdle({ arm, link }: Evidence): string | undefined {
  const settings = link?.tcp_settings;
  if (settings === undefined) return undefined;
  const asked = arm.slowStartAfterIdle === true ? '1' : '0';
  const [near, far] = [settings.near, settings.far].map((end) => end.tcp_slow_start_after_idle ?? 'nothing');
  if (near === asked && far === asked) return undefined;
  return `tcp_slow_start_after_idle was ${near} at the client and ${far} at the server, not ${asked}`;
}

function warmUp({ warmUps }: Evidence): string | undefined {
  const failed = warmUps?.filter(({ ok }) => !ok).map(({ protocol }) => protocol) ?? [];
  return failed.length === 0 ? undefined : coldInWords(failed);
}

/** What has no response head has no bytes of the network: an error page is the browser's own. */
function hasResponse({ error, status }: DevToolsRequest): boolean {
  return error === undefined && status !== undefined;
}

function names(values: readonly string[]): string {
  return [...new Set(values)].join(', ');
}
