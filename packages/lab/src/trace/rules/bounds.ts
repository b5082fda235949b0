import type { Label } from '../label.js';
import { toSeconds } from '../label.js';
import type { LoadTimeline } from '../timeline.js';

/** Data that labels need and no trace file contains. */
export interface LabelContext {
  /** Processor time in seconds, and the wall time over which it was measured. */
  readonly cpu?: {
    readonly seconds: {
      readonly server?: number;
      readonly link?: number;
      readonly browser?: Readonly<Record<string, number>>;
    };
    readonly overSeconds: number;
    /** Number of the machine's processors. */
    readonly cores?: number;
  };
  /** The link's configured rates in Mbit/s; null or absent if unlimited. */
  readonly rateMbit?: { readonly up?: number | null; readonly down?: number | null };
}

const CPU_SHARE = 0.85;

/**
 * `cpu-bound`: one of server, link and the browser's processes used more than 85 % of one processor
 * over the time for which it was measured, or all of them together more than 85 % of all
 * processors.
 */
export function cpuBound(_: LoadTimeline, { cpu }: LabelContext): Label[] {
  if (cpu === undefined || cpu.overSeconds <= 0) return [];
  const { server, link, browser = {} } = cpu.seconds;
  const taken: [string, number][] = [
    ...(server === undefined ? [] : ([['the server', server]] as [string, number][])),
    ...(link === undefined ? [] : ([['the link', link]] as [string, number][])),
    ...Object.entries(browser).map(([name, seconds]): [string, number] => [
      `the browser's ${name} process`,
      seconds,
    ]),
  ];
  const shares = taken.map(([name, seconds]): [string, number] => [
    name,
    seconds / cpu.overSeconds,
  ]);
  const all = shares.reduce((sum, [, share]) => sum + share, 0) / (cpu.cores ?? Infinity);
  const busy = shares.filter(([, share]) => share > CPU_SHARE);
  const labels = busy.map(([name, share]): Label => ({
    kind: 'cpu-bound',
    seconds: cpu.overSeconds,
    detail: `${name} used ${percent(share)} of a processor`,
  }));
  if (labels.length > 0 || all <= CPU_SHARE) return labels;
  const detail = `server, link and browser used ${percent(all)} of all ${cpu.cores ?? 0} processors`;
  return [{ kind: 'cpu-bound', seconds: cpu.overSeconds, detail }];
}

const LINK_SHARE = 0.9;
/** Fates of packets that never used the link's rate. */
const BEFORE_THE_RATE = new Set([
  'queue_full',
  'policed',
  'blocked',
  'outage',
  'overflow',
  'oversized',
]);

/**
 * `network-bound`: between the first request and the last byte, the downlink was sending for more
 * than 90 % of the time: the bytes that entered it, divided by its rate. Not used for a link
 * without a fixed rate.
 */
export function networkBound(
  { packets, requests }: LoadTimeline,
  { rateMbit }: LabelContext,
): Label[] {
  const rate = rateMbit?.down;
  const from = Math.min(...requests.map(({ sent = Infinity }) => sent));
  const to = Math.max(...requests.map(({ end = -Infinity }) => end));
  if (rate === undefined || rate === null || !(to > from)) return [];
  const bytes = packets
    .filter(
      ({ way, arrived, fate }) =>
        way === 'down' && arrived >= from && arrived < to && !BEFORE_THE_RATE.has(fate),
    )
    .reduce((sum, packet) => sum + packet.bytes, 0);
  const share = (bytes * 8) / (rate * 1000) / (to - from);
  if (share <= LINK_SHARE) return [];
  return [
    {
      kind: 'network-bound',
      at: toSeconds(from),
      seconds: toSeconds(to - from),
      detail: `the downlink was sending for ${percent(Math.min(share, 1))} of the time between first request and last byte`,
    },
  ];
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}
