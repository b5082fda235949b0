import { toSeconds, type Label } from '../label.js';
import { isLost, type Flow, type Packet, type Way } from '../packets.js';
import { segmentsOf, type Segment } from '../tcp-bytes.js';
import type { LoadTimeline } from '../timeline.js';
import { fateInWords, senderOf } from './handshake.js';

const WAYS = ['up', 'down'] as const;

/** Acknowledgements alone are smaller, content mostly is not. */
export const DATA_BYTES = 100;

/** What an acknowledgement makes an end send follows it at once. */
const AT_ONCE_MS = 2;

/**
 * `rto`: an end of a TCP connection sent bytes again, the lowest that the other end had not acknowledged, after it had
 * sent nothing with content for longer than a round trip (and at least 150 ms, which is below each kernel's least
 * timer, 200 ms), and without a packet that had reached it within the 2 ms before: it was a timer that made it, not an
 * acknowledgement. `seconds` is the silence.
 */
export function timeouts(timeline: LoadTimeline): Label[] {
  const { baseRoundTripMs = 0 } = timeline;
  const least = Math.max(baseRoundTripMs, 150);
  return carriers(timeline).flatMap((flow) =>
    flow.protocol !== 'tcp'
      ? []
      : WAYS.flatMap((way) => {
          const segments = segmentsOf(flow, way);
          return segments.flatMap((segment, index): Label[] => {
            const before = segments[index - 1];
            if (before === undefined || !segment.again) return [];
            const silence = segment.packet.arrived - before.packet.arrived;
            if (silence <= least || !isLowestUnacknowledged(flow, way, segment)) return [];
            if (wasPrompted(flow, way, segment)) return [];
            return [
              {
                kind: 'rto',
                at: toSeconds(segment.packet.arrived),
                seconds: toSeconds(silence),
                detail: `the ${senderOf(way)} sent bytes again after ${silence.toFixed(0)} ms of silence`,
                connection: flow.name,
              },
            ];
          });
        }),
  );
}

function wasPrompted({ packets }: Flow, way: Way, { packet: { arrived } }: Segment): boolean {
  return packets.some(
    ({ way: each, left }) => each !== way && left !== undefined && left <= arrived && left > arrived - AT_ONCE_MS,
  );
}

/** Whether the other end's last acknowledgement, by the time at which it arrived, points at the segment. */
function isLowestUnacknowledged(flow: Flow, way: Way, { packet }: Segment): boolean {
  const last = flow.packets
    .filter((each) => each.way !== way && each.left !== undefined && each.left <= packet.arrived)
    .filter(({ kind }) => kind.includes('A'))
    .at(-1)?.acknowledgement;
  return last === undefined || packet.sequence === undefined || ((packet.sequence - last) | 0) <= 0;
}

/**
 * `tail-loss`: the link lost one or more packets with content in a row, and their sender sent nothing more with content
 * for longer than a round trip after one of them, so that no later arrival could tell of the loss. One label for such a
 * row, lost repetitions included; `seconds` is the time from the first of them until a packet with content got through,
 * and the row is left out if none did. Content over QUIC is a datagram of at least 100 bytes.
 */
export function tailLosses(timeline: LoadTimeline): Label[] {
  const { baseRoundTripMs } = timeline;
  if (baseRoundTripMs === undefined) return [];
  return carriers(timeline).flatMap((flow) =>
    WAYS.flatMap((way) =>
      lostRows(flow, way).flatMap(({ row, next }): Label[] => {
        const [first] = row;
        const silences = row.map(({ arrived }, index) => (row[index + 1] ?? next).arrived - arrived);
        if (Math.max(...silences) <= baseRoundTripMs) return [];
        const wait = next.arrived - first.arrived;
        const packets = row.length === 1 ? 'the last packet' : `the last ${row.length} packets`;
        return [
          {
            kind: 'tail-loss',
            at: toSeconds(first.arrived),
            seconds: toSeconds(wait),
            detail: `${packets} of what the ${senderOf(way)} sent ${row.length === 1 ? 'was' : 'were'} lost (${fateInWords(first)}); one got through ${wait.toFixed(0)} ms later`,
            connection: flow.name,
          },
        ];
      }),
    ),
  );
}

/** Lost datagrams of a QUIC handshake have labels of their own. */
const HANDSHAKE_KINDS = new Set(['initial', '0rtt', 'handshake', 'retry']);

/** Lost packets with content that follow on each other, and the packet after them. */
function lostRows(flow: Flow, way: Way): { row: [Packet, ...Packet[]]; next: Packet }[] {
  const rows: { row: [Packet, ...Packet[]]; next: Packet }[] = [];
  let row: Packet[] = [];
  for (const packet of flow.packets) {
    if (packet.way !== way || !hasContent(flow, packet) || HANDSHAKE_KINDS.has(packet.kind)) continue;
    if (isLost(packet)) {
      row.push(packet);
      continue;
    }
    const [first, ...rest] = row;
    if (first !== undefined) rows.push({ row: [first, ...rest], next: packet });
    row = [];
  }
  return rows;
}

/** Flows that carried requests. A connection that was made in advance and never used keeps nobody waiting. */
function carriers({ flows, requests }: LoadTimeline): Flow[] {
  return flows.filter(({ name }) => requests.some(({ connection }) => connection === name));
}

/** Whether a packet carries more than acknowledgements. A SYN has no content, and rules of its own. */
export function hasContent({ protocol }: Flow, { payload }: Packet): boolean {
  return protocol === 'tcp' ? payload > 0 : payload >= DATA_BYTES;
}

/** Connections that carried less are not worth the word: they never left their first window. */
const WORTH_BYTES = 30_000;

/**
 * `slow-start-end`: when the server's window of a connection stopped to double. Of TCP by the kernel's word (its slow
 * start threshold was set), of QUIC by the server's (qlog); without either the first loss of a packet with content on
 * its way down. One for each connection that sent at least 30 KB down.
 */
export function slowStartEnds(timeline: LoadTimeline): Label[] {
  return timeline.flows.flatMap((flow): Label[] => {
    const down = flow.packets.filter((packet) => packet.way === 'down' && hasContent(flow, packet));
    if (down.reduce((sum, { payload }) => sum + payload, 0) < WORTH_BYTES) return [];
    const end = thresholdSet(timeline, flow) ?? firstLoss(down);
    return end === undefined
      ? []
      : [{ kind: 'slow-start-end', at: toSeconds(end.at), detail: end.detail, connection: flow.name }];
  });
}

interface SlowStartEnd {
  readonly at: number;
  readonly detail: string;
}

function thresholdSet({ tcpInfo, server }: LoadTimeline, flow: Flow): SlowStartEnd | undefined {
  const said = server.get(flow.name);
  if (said?.slowStartEnd !== undefined) {
    const { slowStartEnd: at } = said;
    const bytes = said.window.findLast((each) => each.at <= at)?.bytes;
    return { at, detail: `slow start ended${bytes === undefined ? '' : ` with a window of ${bytes} bytes`} (qlog)` };
  }
  const row = tcpInfo.find(
    ({ end, nearPort, thresholdPackets }) =>
      flow.protocol === 'tcp' && end === 'far' && nearPort === flow.nearPort && thresholdPackets !== undefined,
  );
  if (row === undefined) return undefined;
  return { at: row.at, detail: `slow start ended with a window of ${row.windowPackets} packets (TCP_INFO)` };
}

function firstLoss(down: readonly Packet[]): SlowStartEnd | undefined {
  const lost = down.find(isLost);
  if (lost === undefined) return undefined;
  const bytes = down.filter(({ arrived }) => arrived < lost.arrived).reduce((sum, { payload }) => sum + payload, 0);
  return { at: lost.arrived, detail: `first loss, after ${bytes} bytes (${fateInWords(lost)})` };
}
