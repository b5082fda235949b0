import { sum } from 'd3-array';
import { scaleLinear } from 'd3-scale';
import { counted, type Label } from '../trace/label.js';
import type { Delivered, NetLogConnection, NetLogStream, StreamPiece } from '../trace/netlog.js';
import { isLost, type Flow, type Packet } from '../trace/packets.js';
import { quicStalls, SAME_PACKET_MS, streamGaps, tcpStalls } from '../trace/rules/head-of-line.js';
import { segmentsOf, tcpArrivals } from '../trace/tcp-bytes.js';
import type { LoadTimeline } from '../trace/timeline.js';
import { html, type Html } from './html.js';
import {
  formatBytes,
  drawing,
  percentAt,
  stepArea,
  ticks,
  type Point,
  type TimeAxis,
} from './tracks.js';

/** Styles in addition to the report's own. */
export const HOL_STYLE = `
.hol { position: relative; isolation: isolate; margin-top: 8px; font-size: 0.74rem; line-height: 18px; }
.hol .lane { display: grid; grid-template-columns: 92px 58px 1fr; column-gap: 6px; }
.hol .lane .size { color: var(--soft); text-align: right; white-space: nowrap; }
.hol .lane .path { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.hol .lane .track { height: 18px; border-bottom: 1px solid var(--line); }
.hol .lane.packets .track { height: 22px; }
.hol .lane.axis .track { border: 0; color: var(--soft); }
.hol .axis .track span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.hol .axis .track span.first { transform: none; }
.hol .axis .track span.last { transform: translateX(-100%); }
.hol .track svg { display: block; position: absolute; inset: 0; margin: 0; width: 100%; height: 100%; overflow: hidden; }
.hol .held { fill: var(--connect); }
.hol .delivered { fill: var(--receive); }
.hol .arrived { fill: none; stroke: var(--soft); stroke-width: 1; opacity: 0.6; }
.hol .behind { position: absolute; inset: 0; display: grid; grid-template-columns: 92px 58px 1fr; column-gap: 6px; pointer-events: none; z-index: -1; }
.hol .behind div { position: relative; grid-column: 3; }
.hol .behind s { position: absolute; top: 0; bottom: 18px; background: color-mix(in srgb, var(--bad) 14%, transparent); }
@media (max-width: 520px) { .hol .lane, .hol .behind { grid-template-columns: 84px 44px 1fr; column-gap: 4px; } }
`;

/** A head-of-line stall that can be drawn: its load has a NetLog and packets. */
export interface DrawableStall {
  readonly timeline: LoadTimeline;
  readonly label: Label;
  readonly connection: NetLogConnection;
  readonly flow: Flow;
}

/**
 * Returns the stall that cost the most in these loads: the largest number of streams times their
 * wait. `protocol` selects the connections.
 */
export function worstStall(
  timelines: readonly LoadTimeline[],
  protocol: 'h2' | 'h3',
): DrawableStall | undefined {
  const stalls = timelines.flatMap((timeline) => {
    const labels = protocol === 'h2' ? tcpStalls(timeline) : quicStalls(timeline);
    return labels.flatMap((label) => {
      const flow = timeline.flows.find(({ name }) => name === label.connection);
      const connection = timeline.netLog?.connections.find(
        (each) => each.protocol === protocol && each.nearPort === flow?.nearPort,
      );
      return flow === undefined || connection === undefined
        ? []
        : [{ timeline, label, connection, flow }];
    });
  });
  return stalls.reduce<DrawableStall | undefined>(
    (best, each) => (best !== undefined && costOf(best.label) >= costOf(each.label) ? best : each),
    undefined,
  );
}

function costOf({ streams = 0, seconds = 0 }: Label): number {
  return streams * seconds;
}

/** Margin around a stall on each side, as a share of its length. */
const MARGIN = 0.6;
const MIN_MARGIN_MS = 25;

/**
 * Draws the head-of-line picture: the bytes delivered to each stream over time around a lost
 * packet, and those that had arrived and had to wait. Stalls of several protocols are side by side
 * on axes of the same length, unless one is so much longer that the other would not be visible.
 */
export function headOfLinePicture(stalls: readonly DrawableStall[]): Html {
  const lengths = stalls.map(({ label }) => windowOf(label, 0)).map(({ from, to }) => to - from);
  const longest = Math.max(...lengths);
  const alike = longest <= MAX_STRETCH * Math.min(...lengths);
  return html`<p class="legend">
      <span><i style="background:var(--receive)"></i>delivered to the browser</span>
      <span><i style="background:var(--connect)"></i>arrived, held back</span>
      <span
        ><i style="width:0;border-left:2px solid var(--bad)"></i>lost packet, when it reached the
        link</span
      >
      <span><i style="background:color-mix(in srgb, var(--bad) 14%, transparent)"></i>stall</span>
    </p>
    <div class="grid">
      ${stalls.map((stall) => panel(stall, windowOf(stall.label, alike ? longest : 0)))}
    </div>
    ${alike ? undefined : html`<p class="soft small">The stalls differ so much in length that each has its own axis.</p>`}`;
}

/** A stall is no longer visible on an axis longer than this many times its own. */
const MAX_STRETCH = 3;

function windowOf({ at = 0, seconds = 0 }: Label, length: number): TimeAxis {
  const [from, to] = [at * 1000, (at + seconds) * 1000];
  const margin = Math.max((to - from) * MARGIN, MIN_MARGIN_MS);
  const missing = Math.max(0, length - (to - from + 2 * margin));
  return { from: from - margin - missing / 2, to: to + margin + missing / 2 };
}

/** A stream in a window of time: delivered and arrived bytes, counted from the window's start. */
interface Lane {
  readonly stream: NetLogStream;
  readonly arrived: readonly Point[];
  readonly delivered: readonly Point[];
  readonly top: number;
}

/** Maximum number of streams that are drawn; those that moved the most are chosen. */
const LANES = 24;

function panel(stall: DrawableStall, axis: TimeAxis): Html {
  const { flow, label, timeline } = stall;
  const lanes = lanesOf(stall, axis);
  const drawn = [...lanes].sort((a, b) => b.top - a.top).slice(0, LANES);
  const shown = lanes.filter((lane) => drawn.includes(lane));
  const inWindow = flow.packets.filter(
    ({ way, arrived, left }) => way === 'down' && between(axis, left ?? arrived),
  );
  const band = [(label.at ?? 0) * 1000, ((label.at ?? 0) + (label.seconds ?? 0)) * 1000] as const;
  const [left, right] = [percentAt(axis, band[0]), percentAt(axis, band[1])];
  const name = protocolName(stall);
  return html`<article class="card">
    <header>
      <h3>${name}</h3>
    </header>
    <div class="hol" role="img" aria-label="${name}: ${label.detail}">
      ${packetLane(inWindow, axis)} ${shown.map((lane) => laneRow(lane, axis))}
      ${axisLane(axis, band[0])}
      <div class="behind">
        <div><s style="left:${left.toFixed(2)}%;width:${(right - left).toFixed(2)}%"></s></div>
      </div>
    </div>
    <p class="small" style="margin-top:10px">${caption(stall, lanes, band)}</p>
    ${
      lanes.length > shown.length
        ? html`<p class="soft small">
            The ${shown.length} streams that moved the most; ${lanes.length - shown.length} more
            moved.
          </p>`
        : undefined
    }
    ${
      timeline.baseRoundTripMs === undefined
        ? undefined
        : html`<p class="soft small">
            Round trip of the link ${timeline.baseRoundTripMs.toFixed(0)} ms.
          </p>`
    }
  </article>`;
}

function protocolName({ connection }: DrawableStall): string {
  return connection.protocol === 'h3' ? 'HTTP/3' : 'HTTP/2';
}

function between({ from, to }: TimeAxis, at: number): boolean {
  return at >= from && at <= to;
}

/** Returns the lanes. Both curves count from the bytes delivered at the start of the window. */
function lanesOf({ connection, flow }: DrawableStall, axis: TimeAxis): Lane[] {
  const tcp =
    connection.protocol === 'h2' ? tcpArrivals(connection, segmentsOf(flow, 'down')) : undefined;
  return connection.streams.flatMap((stream) => {
    const start = bytesAt(stream.delivered, axis.from);
    const delivered = curve(stream.delivered, start, axis);
    const arrived = curve(summed(tcp?.get(stream.id) ?? stream.arrived), start, axis);
    const top = Math.max(arrived.at(-1)?.value ?? 0, delivered.at(-1)?.value ?? 0);
    return top > 0 ? [{ stream, arrived, delivered, top }] : [];
  });
}

/** Accumulates the arrived bytes, in whatever order. */
function summed(pieces: readonly StreamPiece[]): Delivered[] {
  let bytes = 0;
  return pieces.map(({ at, length }) => ({ at, bytes: (bytes += length) }));
}

function bytesAt(points: readonly Delivered[], time: number): number {
  return points.findLast(({ at }) => at < time)?.bytes ?? 0;
}

function curve(points: readonly Delivered[], start: number, axis: TimeAxis): Point[] {
  const inside = points
    .filter(({ at }) => between(axis, at))
    .map(({ at, bytes }) => ({ at, value: bytes - start }));
  const first = { at: axis.from, value: bytesAt(points, axis.from) - start };
  return [first, ...inside, { at: axis.to, value: inside.at(-1)?.value ?? first.value }];
}

function laneRow({ stream, arrived, delivered, top }: Lane, axis: TimeAxis): Html {
  const content = [
    html`<path class="held" d="${stepArea(arrived, axis, top)}" />`,
    html`<path class="delivered" d="${stepArea(delivered, axis, top)}" />`,
  ];
  return html`<div class="lane">
    <span class="path">${pathOf(stream.url)}</span><span class="size">${formatBytes(top)}</span
    ><span class="track">${drawing(content, `stream ${stream.id}`)}</span>
  </div>`;
}

function packetLane(packets: readonly Packet[], axis: TimeAxis): Html {
  const arrived = packets.flatMap(({ left, payload }) =>
    left === undefined || payload === 0 ? [] : [left],
  );
  const lost = packets.filter(isLost).map(({ arrived: at }) => at);
  const content = [
    html`<path class="arrived" d="${ticks(arrived, axis)}" />`,
    html`<path class="lost" style="stroke-width:2" d="${ticks(lost, axis)}" />`,
  ];
  return html`<div class="lane packets">
    <span class="path">packets</span><span class="size">${lost.length} lost</span
    ><span class="track"
      >${drawing(content, `${arrived.length} packets arrived, ${lost.length} were lost`)}</span
    >
  </div>`;
}

/** Draws the axis, with times from the start of the stall. */
function axisLane(axis: TimeAxis, zero: number): Html {
  const inSeconds = axis.to - axis.from > 1_000;
  const labels = scaleLinear([axis.from - zero, axis.to - zero], [0, 100])
    .ticks(4)
    .map((tick) => {
      const place = percentAt(axis, zero + tick);
      const edge = place > 95 ? 'last' : place < 5 ? 'first' : '';
      const sign = tick > 0 ? '+' : tick < 0 ? '\u2212' : '';
      const text = `${sign}${Math.abs(inSeconds ? tick / 1_000 : tick)}`;
      return html`<span class="${edge}" style="left:${place.toFixed(2)}%">${text}</span>`;
    });
  return html`<div class="lane axis">
    <span></span><span class="size">${inSeconds ? 's' : 'ms'}</span
    ><span class="track">${labels}</span>
  </div>`;
}

/** Describes the picture in numbers. */
function caption(
  stall: DrawableStall,
  lanes: readonly Lane[],
  [from, to]: readonly [number, number],
): string {
  const { connection, label, flow } = stall;
  const wait = `${(to - from).toFixed(0)} ms`;
  const lost = flow.packets.findLast(
    (each) => each.way === 'down' && isLost(each) && each.arrived < from,
  );
  const loss =
    lost === undefined ? '' : `A packet was lost at ${(lost.arrived / 1000).toFixed(3)} s. `;
  const waited = `${formatBytes(sum(lanes.map((lane) => mostHeld(lane, from, to))))} arrived but had to wait`;
  const streams = label.streams ?? 0;
  if (connection.protocol === 'h2') {
    return (
      `${loss}For ${wait} none of the ${counted(streams, 'open stream')} received a byte, while ${waited}: ` +
      'TCP delivers bytes only in order.'
    );
  }
  // Others may have had gaps of their own meanwhile, which ended at another time.
  const stalled = new Set(
    streamGaps(connection)
      .filter((gap) => gap.from < to && Math.abs(gap.to - to) <= SAME_PACKET_MS)
      .map(({ stream }) => stream.id),
  );
  const others = lanes.filter(({ stream }) => !stalled.has(stream.id));
  const got = others.map(
    ({ delivered }) => valueBefore(delivered, to) - valueBefore(delivered, from),
  );
  const moved = got.filter((bytes) => bytes > 0).length;
  const which = streams === 1 ? '1 stream had a gap' : `${streams} streams had gaps`;
  const meanwhile =
    moved === 0
      ? 'No other stream received a byte in that time.'
      : `In that time ${formatBytes(sum(got))} of ${counted(moved, 'other stream')} came through: ` +
        'QUIC orders each stream separately.';
  return `${loss}For ${wait} ${which}, and ${waited}. ${meanwhile}`;
}

/**
 * Returns the maximum number of bytes of a stream that had arrived but not been delivered at any
 * time in the range.
 */
function mostHeld({ arrived, delivered }: Lane, from: number, to: number): number {
  const times = [from, ...arrived.map(({ at }) => at).filter((at) => at > from && at < to)];
  return Math.max(0, ...times.map((at) => valueUntil(arrived, at) - valueUntil(delivered, at)));
}

function valueUntil(points: readonly Point[], time: number): number {
  return points.findLast(({ at }) => at <= time)?.value ?? 0;
}

function valueBefore(points: readonly Point[], time: number): number {
  return points.findLast(({ at }) => at < time)?.value ?? 0;
}

/** Returns the last part of a path; a stream's URL is too long for its space. */
function pathOf(url: string): string {
  try {
    const { pathname } = new URL(url);
    return pathname === '/' ? '/' : pathname.slice(pathname.lastIndexOf('/') + 1);
  } catch {
    return url;
  }
}
