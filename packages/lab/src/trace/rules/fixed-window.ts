import { toSeconds, type Label } from '../label.js';
import { isLost, type Flow } from '../packets.js';
import type { LoadTimeline } from '../timeline.js';
import { hasContent } from './recovery.js';

/** Data that a server sent with pauses shorter than between windows. */
interface Burst {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/**
 * Minimum pause in round trips: a server that waits for acknowledgements is silent for a round trip
 * minus the time to send the window.
 */
const PAUSE_ROUND_TRIPS = 0.6;
/**
 * Approximately the initial window of TCP and QUIC. A smaller window is congestion control's
 * minimum.
 */
const MIN_WINDOW_BYTES = 16_000;

/**
 * Minimum number of equal bursts: a congestion window grows by at least half a packet per round
 * trip, so by three packets in this many bursts.
 */
const MIN_ALIKE = 6;
const ALIKE_BYTES = 2_000;
/**
 * Minimum number of unequal bursts, judged by their peaks: between the two halves of so many bursts
 * a congestion window grows by at least two and a half packets.
 */
const MIN_UNLIKE = 10;
const PEAK_BYTES = 1_000;

/**
 * `flow-control-stall` according to the packets alone: a fixed window, such as 64 KB per round
 * trip.
 *
 * Downstream bursts of at least 16 KB each follow each other with silences of more than 0.6 round
 * trips. Throughout each silence a request was open that had reached the server before, and no
 * downstream packet had been lost by then. And the bursts do not grow: at least 6 in a row are
 * equal to within 2,000 bytes, or in at least 10 the largest of the first half and the largest of
 * the second are equal to within 1,000 (a socket's send buffer gives bursts of two sizes). A
 * congestion window grows by more in that time; a window that stays the same while the link is idle
 * was set by something else. `seconds` is the sum of the silences.
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
    const silence = run
      .slice(1)
      .reduce((sum, burst, index) => sum + burst.from - (run[index] as Burst).to, 0);
    const round = (last.from - first.from) / (run.length - 1);
    return [
      {
        kind: 'flow-control-stall',
        at: toSeconds(first.to),
        seconds: toSeconds(silence),
        detail:
          `a fixed window: ${run.length} bursts of up to ${(largest(run) / 1024).toFixed(0)} KiB, one every ` +
          `${round.toFixed(0)} ms, with a total of ${silence.toFixed(0)} ms of silence between them`,
        connection: flow.name,
      },
    ];
  });
}

/**
 * Returns the bursts until the first loss, split at small bursts and where no request waited for
 * the next one.
 */
function sequencesOf({ requests }: LoadTimeline, flow: Flow, roundTrip: number): Burst[][] {
  const loss =
    flow.packets.find((each) => each.way === 'down' && isLost(each))?.arrived ?? Infinity;
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
    if (burst.bytes < MIN_WINDOW_BYTES) sequences.push([]);
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
    if (current === undefined || at - current.to > pause)
      bursts.push({ from: at, to: at, bytes: payload });
    else {
      current.to = at;
      current.bytes += payload;
    }
  }
  return bursts;
}

/** The search is cubic in the number of bursts, and a fixed window is fixed from the beginning. */
const MAX_BURSTS = 120;

function longestFixed(all: readonly Burst[]): readonly Burst[] {
  const bursts = all.slice(0, MAX_BURSTS);
  for (let length = bursts.length; length >= MIN_ALIKE; length -= 1) {
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
  if (run.length < MIN_UNLIKE) return false;
  const half = Math.floor(run.length / 2);
  return Math.abs(largest(run.slice(0, half)) - largest(run.slice(-half))) <= PEAK_BYTES;
}

function largest(bursts: readonly Burst[]): number {
  return Math.max(...bursts.map(({ bytes }) => bytes));
}
