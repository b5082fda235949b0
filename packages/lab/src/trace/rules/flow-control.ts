import { toSeconds, type Label } from '../label.js';
import type { NetLogConnection } from '../netlog.js';
import { isLost, type Flow } from '../packets.js';
import type { LoadTimeline } from '../timeline.js';
import { hasContent } from './recovery.js';

/** Less waiting than this in sum over a connection is not worth the word. */
const WORTH_MS = 20;

/**
 * `flow-control-stall` by the kernel's word: over a connection's life the server's socket was kept by the client's window, or by its
 * own send buffer, for at least 20 ms in sum (TCP_INFO's `rwnd_limited` and `sndbuf_limited`). `at` is the first sample in
 * which the sum had grown.
 */
export function limitedSockets({ tcpInfo, flows }: LoadTimeline): Label[] {
  const LIMITS = [
    { key: 'receiveWindowLimitedMs', what: "the client's receive window" },
    { key: 'sendBufferLimitedMs', what: "the server's send buffer" },
  ] as const;
  return flows.flatMap((flow) => {
    if (flow.protocol !== 'tcp') return [];
    const rows = tcpInfo.filter(({ end, nearPort }) => end === 'far' && nearPort === flow.nearPort);
    return LIMITS.flatMap(({ key, what }): Label[] => {
      const total = rows.at(-1)?.[key] ?? 0;
      const first = rows.find((row) => row[key] > 0);
      if (first === undefined || total < WORTH_MS) return [];
      return [
        {
          kind: 'flow-control-stall',
          at: toSeconds(first.at),
          seconds: toSeconds(total),
          detail: `the server waited ${total.toFixed(0)} ms for ${what} (TCP_INFO)`,
          connection: flow.name,
        },
      ];
    });
  });
}

/**
 * `flow-control-stall` by QUIC's word: the server sent DATA_BLOCKED or STREAM_DATA_BLOCKED (NetLog). It lasts until the client
 * raised a limit of that connection or stream; `seconds` is left out if it never did.
 */
export function blockedFrames({ netLog, flows }: LoadTimeline): Label[] {
  return (netLog?.connections ?? []).flatMap((connection) => {
    const name = flows.find(
      ({ protocol, nearPort }) =>
        protocol === (connection.protocol === 'h3' ? 'udp' : 'tcp') && nearPort === connection.nearPort,
    )?.name;
    return serverBlocked(connection).map(({ at, until, stream }): Label => {
      const what = stream === undefined ? 'the connection' : `stream ${stream}`;
      return {
        kind: 'flow-control-stall',
        at: toSeconds(at),
        ...(until !== undefined && { seconds: toSeconds(until - at) }),
        detail: `the server said that it may send no more of ${what} (${stream === undefined ? 'DATA_BLOCKED' : 'STREAM_DATA_BLOCKED'})`,
        ...(name !== undefined && { connection: name }),
        ...(stream !== undefined && { streams: 1 }),
      };
    });
  });
}

function serverBlocked({ flowControl, protocol }: NetLogConnection): { at: number; until?: number; stream?: number }[] {
  if (protocol !== 'h3') return [];
  return flowControl
    .filter(({ frame, from }) => frame === 'blocked' && from === 'server')
    .map(({ at, stream }) => {
      const raised = flowControl.find(
        (each) => each.frame === 'window-update' && each.from === 'client' && each.stream === stream && each.at >= at,
      );
      return { at, ...(raised !== undefined && { until: raised.at }), ...(stream !== undefined && { stream }) };
    });
}

/** Content that a server sent with pauses of less than {@link PAUSE_ROUND_TRIPS} in between. */
interface Burst {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/** A server that waits for acknowledgements is silent for a round trip less what sending the window took. */
const PAUSE_ROUND_TRIPS = 0.6;
/** A window that grows by half a packet a round trip, the slowest that congestion control does, has grown by more after so many. */
const FEWEST_BURSTS = 5;
const SPREAD_BYTES = 2_000;
/** The initial window of TCP and QUIC is about this. A smaller window is one of congestion control at its least. */
const LEAST_WINDOW_BYTES = 16_000;

/**
 * `flow-control-stall` by the packets alone: a fixed window. At least 5 bursts of content down in a row, each after a silence of
 * more than 0.6 round trips, are alike to 2,000 bytes, of at least 16 KB each, and the connection had lost nothing on
 * its way down until their end, and through each silence a request was open that had reached the server before. A congestion window grows in that time, and more so when nothing was lost; a window that stays the
 * same while the link is idle is one that something else has set. `seconds` is the sum of the silences.
 */
export function fixedWindows({ flows, requests, baseRoundTripMs }: LoadTimeline): Label[] {
  if (baseRoundTripMs === undefined) return [];
  return flows.flatMap((flow) => {
    const bursts = burstsOf(flow, baseRoundTripMs * PAUSE_ROUND_TRIPS);
    const run = longestAlike(bursts);
    const [first] = run;
    const last = run.at(-1);
    if (first === undefined || last === undefined || run.length < FEWEST_BURSTS) return [];
    if (flow.packets.some((each) => each.way === 'down' && isLost(each) && each.arrived <= last.to)) return [];
    const waitedFor = run.slice(1).every((next, index) => {
      const asked = (run[index] as Burst).to - baseRoundTripMs / 2;
      return requests.some(
        ({ connection, sent, end }) =>
          connection === flow.name && sent !== undefined && sent <= asked && (end === undefined || end >= next.from),
      );
    });
    if (!waitedFor) return [];
    const silence = run.slice(1).reduce((sum, burst, index) => sum + burst.from - (run[index] as Burst).to, 0);
    const mean = run.reduce((sum, { bytes }) => sum + bytes, 0) / run.length;
    const round = (last.from - first.from) / (run.length - 1);
    return {
      kind: 'flow-control-stall',
      at: toSeconds(first.to),
      seconds: toSeconds(silence),
      detail:
        `a fixed window: ${run.length} bursts of ${(mean / 1024).toFixed(0)} KiB, one every ${round.toFixed(0)} ms, ` +
        `and the server silent for ${silence.toFixed(0)} ms in between`,
      connection: flow.name,
    } satisfies Label;
  });
}

function burstsOf(flow: Flow, pause: number): Burst[] {
  const bursts: { from: number; to: number; bytes: number }[] = [];
  for (const packet of flow.packets) {
    if (packet.way !== 'down' || !hasContent(flow, packet)) continue;
    const { arrived: at, payload } = packet;
    const current = bursts.at(-1);
    if (current === undefined || at - current.to > pause) bursts.push({ from: at, to: at, bytes: payload });
    else {
      current.to = at;
      current.bytes += payload;
    }
  }
  return bursts;
}

/** The longest run of bursts of which no two differ by more than the spread. */
function longestAlike(bursts: readonly Burst[]): readonly Burst[] {
  let best: readonly Burst[] = [];
  let start = 0;
  bursts.forEach((burst, index) => {
    if (burst.bytes < LEAST_WINDOW_BYTES) start = index + 1;
    while (start <= index && spread(bursts.slice(start, index + 1)) > SPREAD_BYTES) start += 1;
    if (index + 1 - start > best.length) best = bursts.slice(start, index + 1);
  });
  return best;
}

function spread(bursts: readonly Burst[]): number {
  const sizes = bursts.map(({ bytes }) => bytes);
  return Math.max(...sizes) - Math.min(...sizes);
}
