import { max } from 'd3-array';
import { scaleLinear } from 'd3-scale';
import type { BrowserSide, NavigationEntry, TimelineEntry } from '../samples/sample.js';
import { html, type Html } from './html.js';

/** A load whose waterfall is drawn. */
export interface WaterfallLoad {
  readonly load: number;
  readonly arm: string;
  readonly browser: BrowserSide;
}

/** The consecutive phases of a request. */
export const PHASES = ['blocked', 'connect', 'wait', 'receive'] as const;
export type Phase = (typeof PHASES)[number];

export interface Span {
  readonly phase: Phase;
  readonly from: number;
  readonly to: number;
}

/** The phases of one request in milliseconds since navigation start, without empty ones. */
export function spansOf(entry: TimelineEntry): Span[] {
  const { startTime, connectStart, connectEnd, requestStart, responseStart, responseEnd } = entry;
  const connects = connectEnd > connectStart;
  // With early data a request leaves before the handshake ends: its wait starts there and cuts the
  // handshake phase short.
  const connectTo = connects ? Math.min(connectEnd, requestStart) : startTime;
  const spans: Span[] = [
    { phase: 'blocked', from: startTime, to: connects ? connectStart : requestStart },
    { phase: 'connect', from: connects ? connectStart : startTime, to: connectTo },
    { phase: 'blocked', from: connects ? connectTo : requestStart, to: requestStart },
    { phase: 'wait', from: requestStart, to: responseStart },
    { phase: 'receive', from: responseStart, to: responseEnd },
  ];
  return spans.filter(({ from, to }) => to > from);
}

/** Returns the legend of the colours. */
export function waterfallLegend(): Html {
  const meaning: Record<Phase, string> = {
    blocked: 'queued or blocked',
    connect: 'connect',
    wait: 'wait for the first byte',
    receive: 'receive',
  };
  return html`<p class="legend">
    ${PHASES.map((phase) => html`<span><i class="${phase}"></i>${meaning[phase]}</span>`)}
    <span><i style="width:0;border-left:1.5px dashed var(--soft)"></i>first contentful paint</span>
    <span><i style="width:0;border-left:2px solid var(--text)"></i>load event</span>
  </p>`;
}

/** Returns the end of the time axis for all of `loads`, in milliseconds. */
export function waterfallEnd(loads: readonly WaterfallLoad[]): number {
  return (
    max(
      loads.flatMap(({ browser }) =>
        entriesOf(browser).map((entry) => Math.max(entry.responseEnd, loadEnd(entry))),
      ),
    ) ?? 1
  );
}

/**
 * Phases of all requests of a load, and when their responses were complete, in milliseconds since
 * navigation start.
 */
export interface Bars {
  /** One row per request in the order of their start. */
  readonly rows: readonly (readonly Span[])[];
  readonly answers: readonly number[];
}

export function barsOf({ browser }: WaterfallLoad): Bars {
  const entries = entriesOf(browser);
  return {
    rows: entries.map(spansOf),
    answers: entries.map(({ responseEnd }) => responseEnd).filter((end) => end > 0),
  };
}

/**
 * Draws one load: one row per request in the order of their start, on an axis of `end`
 * milliseconds.
 */
export function waterfall({ browser }: WaterfallLoad, end: number): Html {
  const scale = scaleLinear([0, end], [0, 100]).nice(4);
  const left = (ms: number): string => `${scale(ms).toFixed(3)}%`;
  const rows = entriesOf(browser).map((entry) => {
    const bars = spansOf(entry).map(
      ({ phase, from, to }) =>
        html`<i
          class="${phase}"
          style="left:${left(from)};width:${(scale(to) - scale(from)).toFixed(3)}%"
        ></i>`,
    );
    return html`<div class="row" title="${tooltip(entry)}">
      <span class="path">${shortName(entry.name)}</span>
      <span class="protocol">${entry.nextHopProtocol}</span><span class="track">${bars}</span>
    </div>`;
  });
  const ticks = scale.ticks(4);
  const labels = ticks.map((tick) => {
    const last = scale(tick) > 95 ? 'last' : '';
    return html`<span class="${last}" style="left:${left(tick)}">${seconds(tick)}</span>`;
  });
  const grid = ticks.map((tick) => html`<s class="tick" style="left:${left(tick)}"></s>`);
  return html`<div class="waterfall" role="img" aria-label="Waterfall of ${rows.length} requests">
    ${rows}
    <div class="row axis"><span></span><span></span><span class="track">${labels}</span></div>
    <div class="marks behind"><div>${grid}</div></div>
    <div class="marks"><div>${marks(browser, left)}</div></div>
  </div>`;
}

function marks(
  { navigation, firstContentfulPaintMs }: BrowserSide,
  left: (ms: number) => string,
): Html[] {
  const paint =
    firstContentfulPaintMs === undefined
      ? []
      : [html`<s style="left:${left(firstContentfulPaintMs)}"></s>`];
  const load = navigation === undefined ? 0 : navigation.loadEventEnd;
  return load > 0 ? [...paint, html`<s class="load" style="left:${left(load)}"></s>`] : paint;
}

function entriesOf({ navigation, resources }: BrowserSide): (TimelineEntry | NavigationEntry)[] {
  const network = resources.filter(({ name }) => !name.startsWith('data:'));
  const sorted = [...network].sort((a, b) => a.startTime - b.startTime);
  return navigation === undefined ? sorted : [navigation, ...sorted];
}

function loadEnd(entry: TimelineEntry): number {
  return typeof entry.loadEventEnd === 'number' ? entry.loadEventEnd : 0;
}

function shortName(url: string): string {
  try {
    const { pathname } = new URL(url);
    return pathname === '/' ? '/' : pathname.slice(pathname.lastIndexOf('/') + 1);
  } catch {
    return url;
  }
}

function tooltip(entry: TimelineEntry): string {
  const spans = spansOf(entry).map(
    ({ phase, from, to }) => `${phase} ${(to - from).toFixed(1)} ms`,
  );
  return `${shortName(entry.name)} (${entry.nextHopProtocol}, ${entry.transferSize} bytes): ${spans.join(', ')}`;
}

function seconds(milliseconds: number): string {
  return milliseconds === 0 ? '0' : `${Number((milliseconds / 1000).toFixed(3))} s`;
}
