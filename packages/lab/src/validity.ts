import { PORT } from './browser.js';
import { kernelName } from './link-command.js';
import { flowBytes, unaccountedPackets, unaskedDrops, type LinkReport } from './link-report.js';
import { isAnswered } from './load/outcome.js';
import type { Congestion, Protocol } from './plan.js';
import type { BrowserSide } from './sample.js';

/** What a load has to be judged by. */
export interface Evidence {
  readonly protocol: Protocol;
  readonly congestion: Congestion;
  /** Bytes of the page's bodies, when known. */
  readonly pageBytes: number | undefined;
  readonly browser: BrowserSide;
  readonly link: LinkReport;
}

/** The browser's names for the protocols, in `nextHopProtocol` and in the developer tools alike. */
const BROWSER_NAME: Readonly<Record<Protocol, string>> = { h1: 'http/1.1', h2: 'h2', h3: 'h3' };

/**
 * The rules that a load breaks, each with what was seen; none for a valid load.
 *
 * The rules look at whether the load measured what its arm asked for, never at how fast it was. A load that did not
 * complete is an outcome, and valid if what there was of it kept the rules.
 */
export function invalidReasons(evidence: Evidence): string[] {
  const rules = [
    congestionControl,
    timelineProtocol,
    developerToolsProtocol,
    forbiddenBytes,
    expectedBytes,
    unaccounted,
    deadlines,
    unasked,
  ];
  return rules.map((rule) => rule(evidence)).filter((reason) => reason !== undefined);
}

function timelineProtocol({ protocol, browser }: Evidence): string | undefined {
  const entries = browser.navigation === undefined ? browser.resources : [browser.navigation, ...browser.resources];
  // A request without a response has no protocol in the timeline; it shows as incomplete instead.
  const network = entries.filter(({ name, nextHopProtocol }) => !name.startsWith('data:') && nextHopProtocol !== '');
  const other = network.filter(({ nextHopProtocol }) => nextHopProtocol !== BROWSER_NAME[protocol]);
  if (other.length === 0) return undefined;
  return `${other.length} of ${network.length} timeline entries say ${names(other.map((entry) => entry.nextHopProtocol))}`;
}

function developerToolsProtocol({ protocol, browser }: Evidence): string | undefined {
  const other = browser.requests.filter((request) => {
    const answered = isAnswered(request);
    return request.protocol === undefined ? answered : request.protocol !== BROWSER_NAME[protocol];
  });
  if (other.length === 0) return undefined;
  const seen = names(other.map((request) => request.protocol ?? 'no protocol'));
  return `${other.length} of ${browser.requests.length} requests used ${seen} by the developer tools`;
}

function forbiddenBytes({ protocol, link }: Evidence): string | undefined {
  const wrong = protocol === 'h3' ? 'tcp' : 'udp';
  const { up, down } = flowBytes(link, wrong, PORT);
  return up + down === 0 ? undefined : `${up + down} bytes of ${wrong.toUpperCase()} port ${PORT} crossed the link`;
}

function expectedBytes({ protocol, pageBytes, browser, link }: Evidence): string | undefined {
  const right = protocol === 'h3' ? 'udp' : 'tcp';
  const { down } = flowBytes(link, right, PORT);
  const received = browser.requests.reduce((sum, request) => sum + (request.encodedDataLength ?? 0), 0);
  const needed = browser.outcome === 'completed' ? Math.max(received, pageBytes ?? 0) : received;
  if (down > needed || (down === needed && needed === 0)) return undefined;
  return `${down} bytes of ${right.toUpperCase()} port ${PORT} crossed the link, fewer than the ${needed} of the responses`;
}

function deadlines({ link }: Evidence): string | undefined {
  if (link.kept_deadlines) return undefined;
  return `the link missed its deadlines: 1 % of its packets were ${(link.lateness_us.p99 / 1000).toFixed(1)} ms late or more`;
}

function unasked({ link }: Evidence): string | undefined {
  const drops = unaskedDrops(link.up) + unaskedDrops(link.down);
  return drops === 0 ? undefined : `${drops} packets vanished at the link's devices, not by its profile`;
}

function unaccounted({ link }: Evidence): string | undefined {
  const packets = unaccountedPackets(link);
  return packets === 0 ? undefined : `the link carried ${packets} packets of flows that it did not list`;
}

function congestionControl({ congestion, link }: Evidence): string | undefined {
  const { near, far } = link.tcp_congestion;
  const asked = kernelName(congestion);
  return near === asked && far === asked
    ? undefined
    : `TCP had ${near} at the client and ${far} at the server, not ${asked}`;
}

function names(values: readonly string[]): string {
  return [...new Set(values)].join(', ');
}
