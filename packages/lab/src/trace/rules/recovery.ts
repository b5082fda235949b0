import { toSeconds, type Label } from '../label.js';
import { isLost, type Flow, type Packet, type Way } from '../packets.js';
import { segmentsOf, type Segment } from '../tcp-bytes.js';
import type { LoadTimeline } from '../timeline.js';
import { describeFate, senderOf } from './handshake.js';

const WAYS = ['up', 'down'] as const;

/**
 * Minimum size of a datagram that counts as data: pure acknowledgements are smaller, most data is
 * larger.
 */
export const DATA_BYTES = 100;

/** Maximum delay of a packet that an acknowledgement triggers. */
const AT_ONCE_MS = 2;

/**
 * `rto`: an end of a TCP connection retransmitted the lowest bytes that the other end had not
 * acknowledged, after it had sent no payload for longer than a round trip (and at least 150 ms,
 * which is below the shortest timer of any kernel, 200 ms), and no packet had reached it within the
 * 2 ms before: a timer triggered it, not an acknowledgement. `seconds` is the silence.
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
            if (before === undefined || !segment.isRetransmission) return [];
            const silence = segment.packet.arrived - before.packet.arrived;
            if (silence <= least || !isLowestUnacknowledged(flow, way, segment)) return [];
            if (wasPrompted(flow, way, segment)) return [];
            return [
              {
                kind: 'rto',
                at: toSeconds(segment.packet.arrived),
                seconds: toSeconds(silence),
                detail: `the ${senderOf(way)} retransmitted after ${silence.toFixed(0)} ms of silence`,
                connection: flow.name,
              },
            ];
          });
        }),
  );
}

function wasPrompted({ packets }: Flow, way: Way, { packet: { arrived } }: Segment): boolean {
  return packets.some(
    ({ way: each, left }) =>
      each !== way && left !== undefined && left <= arrived && left > arrived - AT_ONCE_MS,
  );
}

/** Returns whether the other end's last acknowledgement that had arrived points at the segment. */
function isLowestUnacknowledged(flow: Flow, way: Way, { packet }: Segment): boolean {
  const last = flow.packets
    .filter((each) => each.way !== way && each.left !== undefined && each.left <= packet.arrived)
    .filter(({ kind }) => kind.includes('A'))
    .at(-1)?.acknowledgement;
  return last === undefined || packet.sequence === undefined || ((packet.sequence - last) | 0) <= 0;
}

/**
 * `tail-loss`: the link lost one or more consecutive packets with payload, and their sender sent no
 * more payload for longer than a round trip after one of them, so that no later arrival could
 * reveal the loss. One label per sequence, including lost retransmissions; `seconds` is the time
 * from the first of them until a packet with payload got through, and there is no label if none
 * did. For QUIC, payload means a datagram of at least 100 bytes.
 */
export function tailLosses(timeline: LoadTimeline): Label[] {
  const { baseRoundTripMs } = timeline;
  if (baseRoundTripMs === undefined) return [];
  return carriers(timeline).flatMap((flow) =>
    WAYS.flatMap((way) =>
      lostRows(flow, way).flatMap(({ row, next }): Label[] => {
        const [first] = row;
        const silences = row.map(
          ({ arrived }, index) => (row[index + 1] ?? next).arrived - arrived,
        );
        if (Math.max(...silences) <= baseRoundTripMs) return [];
        const wait = next.arrived - first.arrived;
        const packets = row.length === 1 ? 'the last packet' : `the last ${row.length} packets`;
        return [
          {
            kind: 'tail-loss',
            at: toSeconds(first.arrived),
            seconds: toSeconds(wait),
            detail: `${packets} of the ${senderOf(way)} ${row.length === 1 ? 'was' : 'were'} lost (${describeFate(first)}); one got through ${wait.toFixed(0)} ms later`,
            connection: flow.name,
          },
        ];
      }),
    ),
  );
}

/** Lost datagrams of a QUIC handshake have separate labels. */
const HANDSHAKE_KINDS = new Set(['initial', '0rtt', 'handshake', 'retry']);

/** Returns sequences of lost packets with payload, each with the packet after it. */
function lostRows(flow: Flow, way: Way): { row: [Packet, ...Packet[]]; next: Packet }[] {
  const rows: { row: [Packet, ...Packet[]]; next: Packet }[] = [];
  let row: Packet[] = [];
  for (const packet of flow.packets) {
    if (packet.way !== way || !hasContent(flow, packet) || HANDSHAKE_KINDS.has(packet.kind))
      continue;
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

/**
 * Returns the flows that carried requests. A preconnected connection that was never used delays
 * nothing.
 */
function carriers({ flows, requests }: LoadTimeline): Flow[] {
  return flows.filter(({ name }) => requests.some(({ connection }) => connection === name));
}

/**
 * Returns whether a packet carries more than acknowledgements. A SYN has no payload, and separate
 * rules.
 */
export function hasContent({ protocol }: Flow, { payload }: Packet): boolean {
  return protocol === 'tcp' ? payload > 0 : payload >= DATA_BYTES;
}

/**
 * Minimum number of downstream bytes of a reported connection: smaller ones never left their first
 * window.
 */
const WORTH_BYTES = 30_000;

/**
 * `slow-start-end`: when the server's window of a connection stopped doubling. For TCP according to
 * the kernel (its slow start threshold was set), for QUIC according to the server (qlog); otherwise
 * the first loss of a downstream packet with payload. One per connection that sent at least 30 KB
 * downstream.
 */
export function slowStartEnds(timeline: LoadTimeline): Label[] {
  return timeline.flows.flatMap((flow): Label[] => {
    const down = flow.packets.filter((packet) => packet.way === 'down' && hasContent(flow, packet));
    if (down.reduce((sum, { payload }) => sum + payload, 0) < WORTH_BYTES) return [];
    const end = thresholdSet(timeline, flow) ?? firstLoss(down);
    return end === undefined
      ? []
      : [
          {
            kind: 'slow-start-end',
            at: toSeconds(end.at),
            detail: end.detail,
            connection: flow.name,
          },
        ];
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
    return {
      at,
      detail: `slow start ended${bytes === undefined ? '' : ` with a window of ${bytes} bytes`} (qlog)`,
    };
  }
  const row = tcpInfo.find(
    ({ end, nearPort, thresholdPackets }) =>
      flow.protocol === 'tcp' &&
      end === 'far' &&
      nearPort === flow.nearPort &&
      thresholdPackets !== undefined,
  );
  if (row === undefined) return undefined;
  return {
    at: row.at,
    detail: `slow start ended with a window of ${row.windowPackets} packets (TCP_INFO)`,
  };
}

function firstLoss(down: readonly Packet[]): SlowStartEnd | undefined {
  const lost = down.find(isLost);
  if (lost === undefined) return undefined;
  const bytes = down
    .filter(({ arrived }) => arrived < lost.arrived)
    .reduce((sum, { payload }) => sum + payload, 0);
  return { at: lost.arrived, detail: `first loss, after ${bytes} bytes (${describeFate(lost)})` };
}
