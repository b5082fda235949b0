import { Contiguous } from '../contiguous.js';
import { counted, toSeconds, type Label } from '../label.js';
import type { NetLogConnection, NetLogStream } from '../netlog.js';
import type { Flow } from '../packets.js';
import { segmentsOf, stallsOf } from '../tcp-bytes.js';
import type { LoadTimeline } from '../timeline.js';

/**
 * Minimum length of a stall: the emulator may be late by up to 2 ms, and a browser's own work takes
 * longer.
 */
export const SHORTEST_STALL_MS = 5;

/**
 * `hol-stall` over HTTP/1.1 and HTTP/2: the link lost a downstream packet with payload, and later
 * bytes of the connection reached the client before its retransmission. The stall lasts from the
 * arrival of the first such byte until the missing ones arrived, and at least 5 ms. `streams`
 * counts the connection's open requests in that time, sent but not answered in full, from the
 * NetLog or the developer tools. (Over HTTP/1.1 that is one.)
 */
export function tcpStalls(timeline: LoadTimeline): Label[] {
  return timeline.flows.flatMap((flow) => {
    if (flow.protocol !== 'tcp') return [];
    return stallsOf(segmentsOf(flow, 'down')).flatMap(
      ({ from, to, lost, missing, heldBytes }): Label[] => {
        if (lost === undefined || to - from < SHORTEST_STALL_MS) return [];
        const streams = openOn(timeline, flow, to);
        if (streams === 0) return [];
        const bytes = missing.to - missing.from;
        return [
          {
            kind: 'hol-stall',
            at: toSeconds(from),
            seconds: toSeconds(to - from),
            detail:
              `${counted(streams, 'stream')} stalled for ${(to - from).toFixed(0)} ms: ${bytes} bytes of TCP were ` +
              `missing, and ${heldBytes} bytes after them had to wait`,
            connection: flow.name,
            streams,
          },
        ];
      },
    );
  });
}

/**
 * Counts the requests that had been sent on a connection by a time, and not answered in full before
 * it.
 */
function openOn({ requests, netLog }: LoadTimeline, flow: Flow, time: number): number {
  const logged = netLog?.connections.find(
    ({ protocol, nearPort }) => protocol === 'h2' && nearPort === flow.nearPort,
  );
  const spans =
    logged?.streams.map(({ requestedAt, endedAt }) => ({ from: requestedAt, to: endedAt })) ??
    requests.flatMap(({ connection, sent, end }) =>
      connection === flow.name && sent !== undefined ? [{ from: sent, to: end }] : [],
    );
  return spans.filter(({ from, to }) => from < time && (to === undefined || to >= time)).length;
}

/** A period in which a stream had received bytes after a gap. */
export interface StreamGap {
  readonly stream: NetLogStream;
  readonly from: number;
  readonly to: number;
  readonly missingBytes: number;
}

/**
 * Returns the gaps of a QUIC connection's streams, from the STREAM frames that the browser
 * received.
 */
export function streamGaps({ streams }: NetLogConnection): StreamGap[] {
  return streams.flatMap((stream) => {
    const gaps: StreamGap[] = [];
    const bytes = new Contiguous();
    let since: number | undefined;
    for (const { at, offset, length } of stream.arrived) {
      const { end, gapEnd } = bytes;
      bytes.add(offset, offset + length);
      if (bytes.end > end) {
        if (since !== undefined && gapEnd !== undefined)
          gaps.push({ stream, from: since, to: at, missingBytes: gapEnd - end });
        since = bytes.hasGap ? at : undefined;
      } else if (bytes.hasGap) since ??= at;
    }
    return gaps;
  });
}

/**
 * Gaps that were filled within this time were filled by the same packet: the NetLog's clock has
 * whole milliseconds.
 */
export const SAME_PACKET_MS = 2;

/**
 * `hol-stall` over HTTP/3: frames of a stream arrived while bytes before them were missing, for at
 * least 5 ms. Only the streams with the gap stalled, so only they count. Gaps of several streams
 * that end together are one stall: one lost packet may have carried bytes of several streams.
 * Requires a NetLog.
 */
export function quicStalls({ netLog, flows }: LoadTimeline): Label[] {
  return (netLog?.connections ?? []).flatMap((connection) => {
    if (connection.protocol !== 'h3') return [];
    const name = flows.find(
      ({ protocol, nearPort }) => protocol === 'udp' && nearPort === connection.nearPort,
    )?.name;
    const gaps = streamGaps(connection).filter(({ from, to }) => to - from >= SHORTEST_STALL_MS);
    return filledTogether(gaps).map((group): Label => {
      const from = Math.min(...group.map((gap) => gap.from));
      const to = Math.max(...group.map((gap) => gap.to));
      const stalled = new Set(group.map(({ stream }) => stream.id));
      const others = connection.streams.filter(
        ({ id, delivered }) =>
          !stalled.has(id) && delivered.some(({ at }) => at >= from && at <= to),
      ).length;
      return {
        kind: 'hol-stall',
        at: toSeconds(from),
        seconds: toSeconds(to - from),
        detail:
          `${counted(stalled.size, 'stream')} had a gap for ${(to - from).toFixed(0)} ms, while ` +
          `${counted(others, 'other')} continued`,
        ...(name !== undefined && { connection: name }),
        streams: stalled.size,
      };
    });
  });
}

function filledTogether(gaps: readonly StreamGap[]): StreamGap[][] {
  const groups: StreamGap[][] = [];
  for (const gap of [...gaps].sort((a, b) => a.to - b.to)) {
    const group = groups.at(-1);
    if (group?.[0] !== undefined && gap.to - group[0].to <= SAME_PACKET_MS) group.push(gap);
    else groups.push([gap]);
  }
  return groups;
}
