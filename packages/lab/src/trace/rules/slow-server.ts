import { counted, toSeconds, type Label } from '../label.js';
import { isLost, type Flow, type Packet } from '../packets.js';
import type { ServerTrace } from '../qlog.js';
import type { TimelineRequest } from '../requests.js';
import type { LoadTimeline } from '../timeline.js';
import { hasContent } from './recovery.js';

export const SLOW_MS = 100;

/**
 * `slow-server`: a request had reached the server, and more than 100 ms later the server had not
 * sent anything of a response. Round trips are not included: both times are taken at the server's
 * end of the link.
 *
 * With the server's qlog each request is judged separately. Without it requests are judged by the
 * packets: from the arrival at the far end of the first packet with payload that the client sent
 * after it had written the request, until the packet that ends a silence of the server of more than
 * 100 ms, before the browser saw the response begin. The rule applies only if nothing else can have
 * delayed the server: from a round trip before the request until then it had sent at most 8 KB
 * (less than any initial window; TLS tickets and SETTINGS included), and nothing of the connection
 * was lost for two round trips before and in between. Requests whose waits end together are one
 * label; `streams` is their number, `seconds` the wait of the first.
 */
export function slowServer(timeline: LoadTimeline): Label[] {
  return timeline.flows.flatMap((flow) => {
    const trace = timeline.server.get(flow.name);
    const waits = trace === undefined ? waitsAtLink(timeline, flow) : waitsInQlog(trace);
    return grouped(waits).map((group): Label => {
      const [first] = group;
      const wait = first.to - first.from;
      return {
        kind: 'slow-server',
        at: toSeconds(first.from),
        seconds: toSeconds(wait),
        detail: `the server had ${counted(group.length, 'request')} for ${wait.toFixed(0)} ms before it sent any response`,
        connection: flow.name,
        streams: group.length,
      };
    });
  });
}

interface Wait {
  readonly from: number;
  readonly to: number;
}

function waitsInQlog({ requests }: ServerTrace): Wait[] {
  return requests.flatMap(({ requestAt, responseAt }) =>
    responseAt !== undefined && responseAt - requestAt > SLOW_MS
      ? [{ from: requestAt, to: responseAt }]
      : [],
  );
}

function waitsAtLink({ requests, baseRoundTripMs = 0 }: LoadTimeline, flow: Flow): Wait[] {
  const content = flow.packets.filter((packet) => hasContent(flow, packet));
  return requests.flatMap((request) => {
    const wait =
      request.connection === flow.name ? waitOf(request, content, baseRoundTripMs) : undefined;
    return wait === undefined ? [] : [wait];
  });
}

/** The browser records that it has written a request slightly after or before the link sees it. */
const SLACK_MS = 2;
/** The smallest initial window in use is 10 packets of 1,200 bytes. */
const WINDOW_BYTES = 8_000;

function waitOf(
  { sent, responseStart }: TimelineRequest,
  content: readonly Packet[],
  roundTrip: number,
): Wait | undefined {
  if (sent === undefined || responseStart === undefined) return undefined;
  const from = content.find(({ way, arrived }) => way === 'up' && arrived >= sent - SLACK_MS)?.left;
  if (from === undefined) return undefined;
  const answers = content.filter(
    ({ way, arrived, left }) =>
      way === 'down' && arrived > from && left !== undefined && left <= responseStart + SLACK_MS,
  );
  const answer = answers.find(
    ({ arrived }, index) => arrived - (answers[index - 1]?.arrived ?? from) > SLOW_MS,
  );
  if (answer === undefined) return undefined;
  const around = content.filter(
    ({ arrived }) => arrived > from - 2 * roundTrip && arrived < answer.arrived,
  );
  const sentDown = around
    .filter(({ way, arrived }) => way === 'down' && arrived > from - roundTrip + SLACK_MS)
    .reduce((sum, { payload }) => sum + payload, 0);
  return sentDown > WINDOW_BYTES || around.some(isLost) ? undefined : { from, to: answer.arrived };
}

/**
 * Waits that end at most 20 ms apart count as one, since a server that delays each response answers
 * a burst of requests with a burst.
 */
const TOGETHER_MS = 20;

function grouped(waits: readonly Wait[]): [Wait, ...Wait[]][] {
  const groups: [Wait, ...Wait[]][] = [];
  for (const wait of [...waits].sort((a, b) => a.to - b.to)) {
    const group = groups.at(-1);
    if (group !== undefined && wait.to - (group.at(-1) as Wait).to <= TOGETHER_MS) group.push(wait);
    else groups.push([wait]);
  }
  return groups;
}
