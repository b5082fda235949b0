import { toSeconds, type Label } from '../label.js';
import { isLost, type Flow } from '../packets.js';
import type { LoadTimeline } from '../timeline.js';
import { hasContent } from './recovery.js';

/** Content that a server sent with shorter pauses than a window's in between. */
interface Burst {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/** A server that waits for acknowledgements is silent for a round trip less what sending the window took. */
const PAUSE_ROUND_TRIPS = 0.6;
/** The initial window of TCP and QUIC is about this. A smaller window is one of congestion control at its least. */
const LEAST_WINDOW_BYTES = 16_000;

/** Congestion control's window grows by half a packet a round trip at the slowest: by three in this many bursts. */
const FEWEST_ALIKE = 6;
const ALIKE_BYTES = 2_000;
/**
 * Where bursts differ, their peaks tell: from one half of so many to the other they grow by two and a half packets at
 * the slowest.
 */
const FEWEST_UNLIKE = 10;
const PEAK_BYTES = 1_000;

/**
 * `flow-control-stall` by the packets alone: a fixed window, such as 64 KB for each round trip.
 *
 * Bursts of content on the way down, of at least 16 KB each, follow on each other with silences of more than 0.6 round
 * trips, through each of which a request was open that had reached the server before; nothing had been lost on the way
 * down by then. And they do not grow: at least 6 in a row are alike to 2,000 bytes, or in at least 10 the largest of
 * the first half and the largest of the second are alike to 1,000 (a socket's send buffer gives bursts of two sizes). A
 * congestion window grows by more in that time; what stays the same while the link is idle was set by something else.
 * `seconds` is the sum of the silences.
 */
export function fixedWindows(timeline: LoadTimeline): Label[] {
  const { flows, baseRoundTripMs } = timeline;
  if (baseRoundTripMs === undefined) return [];
  return flows.flatMap((flow): Label[] => {
    const run = sequencesOf(timeline, flow, baseRoundTripMs)
      .map(longestFixed)
      .reduce((best, each) => (each.length > best.length ? each : best), []);
    const [first] = run;
    const last = run.at(-1);
    if (first === undefined || last === undefined) return [];
    const silence = run.slice(1).reduce((sum, burst, index) => sum + burst.from - (run[index] as Burst).to, 0);
    const round = (last.from - first.from) / (run.length - 1);
    return [
      {
        kind: 'flow-control-stall',
        at: toSeconds(first.to),
        seconds: toSeconds(silence),
        detail:
          `a fixed window: ${run.length} bursts of up to ${(largest(run) / 1024).toFixed(0)} KiB, one every ` +
          `${round.toFixed(0)} ms, and the server silent for ${silence.toFixed(0)} ms in between`,
        connection: flow.name,
      },
    ];
  });
}

/** The bursts until the first loss, cut where one is small and where nobody waited for the next one. */
function sequencesOf({ requests }: LoadTimeline, flow: Flow, roundTrip: number): Burst[][] {
  const loss = flow.packets.find((each) => each.way === 'down' && isLost(each))?.arrived ?? Infinity;
  const bursts = burstsOf(flow, roundTrip * PAUSE_ROUND_TRIPS).filter(({ to }) => to < loss);
  const waitedFor = (before: Burst, next: Burst): boolean =>
    requests.some(
      ({ connection, sent, end }) =>
        connection === flow.name &&
        sent !== undefined &&
        sent <= before.to - roundTrip / 2 &&
        (end === undefined || end >= next.from),
    );
  const sequences: Burst[][] = [[]];
  for (const burst of bursts) {
    const current = sequences.at(-1) as Burst[];
    const before = current.at(-1);
    if (burst.bytes < LEAST_WINDOW_BYTES) sequences.push([]);
    else if (before === undefined || waitedFor(before, burst)) current.push(burst);
    else sequences.push([burst]);
  }
  return sequences;
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

/** The search takes the cube of their number, and a window that is fixed is so from the beginning. */
const MOST_BURSTS = 120;

function longestFixed(all: readonly Burst[]): readonly Burst[] {
  const bursts = all.slice(0, MOST_BURSTS);
  for (let length = bursts.length; length >= FEWEST_ALIKE; length -= 1) {
    for (let start = 0; start + length <= bursts.length; start += 1) {
      const run = bursts.slice(start, start + length);
      if (isFixed(run)) return run;
    }
  }
  return [];
}

function isFixed(run: readonly Burst[]): boolean {
  const sizes = run.map(({ bytes }) => bytes);
  if (Math.max(...sizes) - Math.min(...sizes) <= ALIKE_BYTES) return true;
  if (run.length < FEWEST_UNLIKE) return false;
  const half = Math.floor(run.length / 2);
  return Math.abs(largest(run.slice(0, half)) - largest(run.slice(-half))) <= PEAK_BYTES;
}

function largest(bursts: readonly Burst[]): number {
  return Math.max(...bursts.map(({ bytes }) => bytes));
}
