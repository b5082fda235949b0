import { max } from 'd3-array';
import { scaleLinear } from 'd3-scale';
import { LABEL_KINDS, type Label, type LabelKind } from '../trace/label.js';
import { isLost, type Packet, type Way } from '../trace/packets.js';
import type { LoadTimeline } from '../trace/timeline.js';
import { html, type Html } from './html.js';
import {
  BINS,
  binned,
  formatBytes,
  drawing,
  percentAt,
  significant,
  stepArea,
  stepPath,
  thinned,
  ticks,
  type Point,
  type TimeAxis,
} from './tracks.js';
import { waterfall, waterfallEnd, type WaterfallLoad } from './waterfall.js';

/** Styles in addition to the report's own. */
export const TIMELINE_STYLE = `
.timeline .row.tall { margin-top: 3px; line-height: 1.25; }
.timeline .row .what { grid-column: 1 / span 2; align-self: center; overflow: hidden; text-overflow: ellipsis; }
.timeline .row .what b { display: block; font-weight: 600; }
.timeline .row .what span { color: var(--soft); }
.timeline .row.tall .track { height: 44px; background: color-mix(in srgb, var(--grid) 45%, transparent); }
.timeline svg { display: block; position: absolute; inset: 0; width: 100%; height: 100%; overflow: hidden; }
.timeline svg path, .hol svg path { vector-effect: non-scaling-stroke; }
.timeline .fill { fill: var(--receive); }
.timeline .soft-fill { fill: var(--wait); opacity: 0.75; }
.timeline .stroke { fill: none; stroke: var(--receive); stroke-width: 1.5; }
.timeline .stroke.second { stroke: var(--connect); }
.lost { fill: none; stroke: var(--bad); stroke-width: 1.25; }
.timeline .span { background: var(--bad); opacity: 0.55; min-width: 3px; border-radius: 1px; }
.timeline .span.note { background: var(--soft); }
.timeline ol.labels { margin: 12px 0 0; padding-left: 1.4em; font-size: 0.86rem; }
.timeline ol.labels li { margin-bottom: 2px; overflow-wrap: anywhere; }
.timeline .axis .track { height: 20px; }
`;

/** A load that is drawn; without traces it has no timeline. */
export interface ReportedLoad extends WaterfallLoad {
  readonly labels: readonly Label[];
  readonly timeline: LoadTimeline | undefined;
}

/** Maximum number of labels described under a drawing; all are drawn. */
const LABELS_IN_WORDS = 12;

/**
 * Draws one load on one time axis: the browser's requests on top, and below them the findings of
 * the rules, the packets of both directions, the queue, and the server's congestion window and
 * round trip. Tracks without data are omitted. `end` is the end of the axis in milliseconds;
 * several loads can be compared on the same axis.
 */
export function timelineDrawing(
  load: WaterfallLoad,
  timeline: LoadTimeline,
  labels: readonly Label[],
  end = waterfallEnd([load]),
): Html {
  // Uses the waterfall's own axis, so that everything aligns vertically.
  const [, to = end] = scaleLinear([0, end], [0, 100]).nice(4).domain();
  const axis = { from: 0, to };
  const tracks = [
    ...labelTracks(labels, axis),
    ...(['down', 'up'] as const).flatMap((way) => packetTrack(timeline.packets, way, axis)),
    ...queueTrack(timeline.packets, axis),
    ...windowTracks(timeline, axis),
  ];
  return html`<div class="timeline">
    ${waterfall(load, end)}
    <div class="waterfall">${tracks} ${axisRow(axis)}</div>
    ${inWords(labels)}
    <p class="soft small">${howDrawn(timeline, axis)}</p>
  </div>`;
}

function row(name: string, note: string, content: Html, tall = true): Html {
  return html`<div class="row${tall ? ' tall' : ''}">
    <span class="what"
      >${tall ? html`<b>${name}</b><span>${note}</span>` : html`${name} <span>${note}</span>`}</span
    ><span class="track">${content}</span>
  </div>`;
}

/** Labels for events that did not cause waiting. */
const NOTES = new Set<string>(['slow-start-end', 'network-bound', 'cpu-bound']);

/** A few words for each kind of label. */
export const LABEL_NAMES: Readonly<Record<LabelKind, string>> = {
  'syn-retransmitted': 'SYN resent',
  'syn-ack-retransmitted': 'SYN-ACK resent',
  'initial-lost': 'Initial lost',
  'handshake-packet-lost': 'handshake loss',
  'hol-stall': 'head of line',
  'flow-control-stall': 'flow control',
  'race-won-by-tcp': 'TCP won race',
  'fell-back-to-tcp': 'fell back to TCP',
  rto: 'time-out',
  'tail-loss': 'tail loss',
  'slow-start-end': 'slow start ends',
  'cpu-bound': 'CPU-bound',
  'network-bound': 'network-bound',
  'slow-server': 'slow server',
};

/** Draws one row per kind of label that was found, with a bar for each occurrence. */
function labelTracks(labels: readonly Label[], axis: TimeAxis): Html[] {
  return LABEL_KINDS.flatMap((kind) => {
    const those = labels.filter((label) => label.kind === kind);
    if (those.length === 0) return [];
    const bars = those.map(({ at = 0, seconds = 0, detail }) => {
      const left = percentAt(axis, at * 1000);
      const width = percentAt(axis, (at + seconds) * 1000) - left;
      return html`<i
        class="span${NOTES.has(kind) ? ' note' : ''}"
        style="left:${left.toFixed(3)}%;width:${width.toFixed(3)}%"
        title="${detail}"
      ></i>`;
    });
    return [
      row(LABEL_NAMES[kind], those.length > 1 ? `× ${those.length}` : '', html`${bars}`, false),
    ];
  });
}

function packetTrack(packets: readonly Packet[], way: Way, axis: TimeAxis): Html[] {
  const those = packets.filter((each) => each.way === way && each.arrived <= axis.to);
  if (those.length === 0) return [];
  const delivered = those.filter(({ left }) => left !== undefined);
  const bytes = (items: readonly Packet[]): number =>
    items.reduce((sum, each) => sum + each.bytes, 0);
  const points = binned(delivered, ({ left = 0 }) => left, axis, bytes);
  const top = max(points, ({ value }) => value) ?? 0;
  const lost = those.filter(isLost);
  const content = [
    html`<path
      class="${way === 'down' ? 'fill' : 'soft-fill'}"
      d="${stepArea(points, axis, top || 1)}"
    />`,
    html`<path
      class="lost"
      d="${ticks(
        lost.map(({ arrived }) => arrived),
        axis,
      )}"
    />`,
  ];
  const label = `${formatBytes(bytes(delivered))} ${way}, ${lost.length} of ${those.length} packets lost`;
  const note = `${formatBytes(bytes(delivered))}${lost.length > 0 ? `, ${lost.length} lost` : ''}`;
  return [row(`packets ${way}`, note, drawing(content, label))];
}

function queueTrack(packets: readonly Packet[], axis: TimeAxis): Html[] {
  const down = packets.filter(({ way }) => way === 'down');
  const points = binned(
    down,
    ({ arrived }) => arrived,
    axis,
    (items) => max(items, (each) => each.queueBytes) ?? 0,
  );
  const top = max(points, ({ value }) => value) ?? 0;
  if (top === 0) return [];
  const area = html`<path class="soft-fill" d="${stepArea(points, axis, top)}" />`;
  return [
    row(
      'queue down',
      `to ${formatBytes(top)}`,
      drawing(area, `Queue of at most ${formatBytes(top)}`),
    ),
  ];
}

/**
 * Draws the congestion window and the round trip of the connection with the most requests, as the
 * server measured them.
 */
function windowTracks(timeline: LoadTimeline, axis: TimeAxis): Html[] {
  const { tcpInfo, server, flows } = timeline;
  const main = busiest(timeline);
  const flow = flows.find(({ name }) => name === main);
  if (flow === undefined) return [];
  const rows = tcpInfo.filter(
    ({ end, nearPort }) => flow.protocol === 'tcp' && end === 'far' && nearPort === flow.nearPort,
  );
  const window =
    flow.protocol === 'tcp'
      ? rows.map(({ at, windowPackets, segmentBytes }) => ({
          at,
          value: windowPackets * segmentBytes,
        }))
      : (server.get(flow.name)?.window ?? []).map(({ at, bytes }) => ({ at, value: bytes }));
  const roundTrip = rows.map(({ at, roundTripMs }) => ({ at, value: roundTripMs }));
  return [
    ...curve('window', window, axis, 'stroke', formatBytes),
    ...curve('round trip', roundTrip, axis, 'stroke second', (value) => `${significant(value)} ms`),
  ];
}

function curve(
  name: string,
  points: readonly Point[],
  axis: TimeAxis,
  style: string,
  words: (value: number) => string,
): Html[] {
  const inside = points.filter(({ at }) => at <= axis.to);
  const top = max(inside, ({ value }) => value);
  if (top === undefined || top <= 0) return [];
  const path = html`<path class="${style}" d="${stepPath(thinned(inside, axis), axis, top)}" />`;
  return [row(name, `to ${words(top)}`, drawing(path, `${name} of at most ${words(top)}`))];
}

function busiest({ requests }: LoadTimeline): string | undefined {
  const counts = new Map<string, number>();
  for (const { connection } of requests) {
    if (connection !== undefined) counts.set(connection, (counts.get(connection) ?? 0) + 1);
  }
  return [...counts].sort(([, a], [, b]) => b - a)[0]?.[0];
}

function axisRow(axis: TimeAxis): Html {
  const labels = scaleLinear([axis.from, axis.to], [0, 100])
    .ticks(4)
    .map((tick) => {
      const last = percentAt(axis, tick) > 95 ? 'last' : '';
      const text = tick === 0 ? '0' : `${Number((tick / 1000).toFixed(3))} s`;
      return html`<span class="${last}" style="left:${percentAt(axis, tick).toFixed(3)}%"
        >${text}</span
      >`;
    });
  return html`<div class="row axis">
    <span></span><span></span><span class="track">${labels}</span>
  </div>`;
}

/** Describes the longest labels, in order of time. */
function inWords(labels: readonly Label[]): Html | undefined {
  if (labels.length === 0) return html`<p class="soft small">The rules found nothing.</p>`;
  const longest = [...labels]
    .sort((a, b) => (b.seconds ?? 0) - (a.seconds ?? 0))
    .slice(0, LABELS_IN_WORDS);
  const shown = labels.filter((label) => longest.includes(label));
  const items = shown.map(({ at, kind, detail, connection }) => {
    const when = at === undefined ? 'throughout' : `${at.toFixed(3)} s`;
    return html`<li>
      <b>${when}</b> ${LABEL_NAMES[kind]}: ${detail}
      ${connection === undefined ? '' : html`<span class="soft">(${connection})</span>`}
    </li>`;
  });
  const more = labels.length - shown.length;
  const rest =
    more > 0
      ? html`<p class="soft small">The ${shown.length} longest; ${more} more are drawn above.</p>`
      : undefined;
  return html`<ol class="labels">
      ${items}
    </ol>
    ${rest}`;
}

function howDrawn({ packets }: LoadTimeline, axis: TimeAxis): string {
  if (packets.length === 0) return 'The packets of this load were not recorded.';
  const bin = (axis.to - axis.from) / BINS;
  return (
    `Packets are drawn when they left the link (lost ones, in red, when they reached it), summed over ${bin.toFixed(1)} ms; ` +
    'losses closer together than a thousandth of the axis are one line; the queue shows the maximum of each interval. Each track has its own scale. ' +
    'Everything before navigation start is drawn at 0.'
  );
}
