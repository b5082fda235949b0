import { max } from 'd3-array';
import { scaleBand, scaleLinear, type ScaleLinear } from 'd3-scale';
import { area, curveLinear } from 'd3-shape';
import type { Cell } from '../results.js';
import { density } from '../statistics.js';
import { coordinate as at, html, type Html } from './html.js';

/** Wide enough for the words under each of many arms. */
const LEAST_WIDTH = 440;
const WIDTH_PER_ARM = 88;
const HEIGHT = 330;
const MARGIN = { top: 26, right: 14, bottom: 62, left: 50 };
const POINT_RADIUS = 3;
/** Beyond this many, points say no more than the shape and only blacken it. */
const MOST_POINTS = 200;

/** The cells of one profile side by side: a violin, the loads as points, the median, and those that did not complete. */
export function violinPlot(cells: readonly Cell[], colourOf: (arm: string) => string): Html {
  const width = Math.max(LEAST_WIDTH, MARGIN.left + MARGIN.right + WIDTH_PER_ARM * cells.length);
  const slowest = max(cells.flatMap(timesOf)) ?? 1;
  const y = scaleLinear([0, slowest], [HEIGHT - MARGIN.bottom, MARGIN.top]).nice(5);
  const x = scaleBand(
    cells.map(({ arm }) => arm),
    [MARGIN.left, width - MARGIN.right],
  ).padding(0.12);
  const violins = cells.map((cell) => {
    const middle = (x(cell.arm) ?? 0) + x.bandwidth() / 2;
    return violin(cell, middle, x.bandwidth(), y, colourOf(cell.arm));
  });
  return html`<svg class="violin" viewBox="0 0 ${width} ${HEIGHT}" role="img" aria-label="${inWords(cells)}">
    ${axis(y, width)}${violins}
  </svg>`;
}

function axis(y: ScaleLinear<number, number>, width: number): Html[] {
  const ticks = y.ticks(5).map((tick) => {
    const height = at(y(tick));
    return html`<line
        class="${tick === 0 ? 'base' : 'rule'}"
        x1="${MARGIN.left}"
        x2="${width - MARGIN.right}"
        y1="${height}"
        y2="${height}"
      />
      <text x="${MARGIN.left - 8}" y="${height}" dy="0.32em" text-anchor="end">${y.tickFormat(5)(tick)}</text>`;
  });
  return [...ticks, html`<text x="${MARGIN.left - 8}" y="14" text-anchor="end">s</text>`];
}

function violin(cell: Cell, middle: number, band: number, y: ScaleLinear<number, number>, colour: string): Html {
  const times = timesOf(cell);
  const base = HEIGHT - MARGIN.bottom;
  return html`<g>
    ${shape(times, middle, band * 0.36, y, colour)} ${points(times, middle, band * 0.36, y, colour)}
    ${medianMark(cell, middle, band, y)} ${notCompleted(cell, middle)}
    <text class="label" x="${at(middle)}" y="${base + 20}" text-anchor="middle">${cell.arm}</text>
    <text x="${at(middle)}" y="${base + 37}" text-anchor="middle">n = ${cell.summary.n}</text>
  </g>`;
}

function shape(
  times: readonly number[],
  middle: number,
  reach: number,
  y: ScaleLinear<number, number>,
  colour: string,
): Html | undefined {
  const curve = density(times);
  if (curve === undefined) return undefined;
  const widest = max(curve, ([, share]) => share) ?? 1;
  const outline = area<readonly [number, number]>()
    .x0(([, share]) => middle - (reach * share) / widest)
    .x1(([, share]) => middle + (reach * share) / widest)
    .y(([value]) => y(value))
    .curve(curveLinear)
    .digits(2)([...curve]);
  return html`<path d="${outline ?? ''}" fill="${colour}" fill-opacity="0.22" stroke="${colour}" stroke-width="1.5" />`;
}

/** Points at their height, moved sideways only as far as they would cover each other. */
function points(
  times: readonly number[],
  middle: number,
  reach: number,
  y: ScaleLinear<number, number>,
  colour: string,
): Html[] {
  if (times.length > MOST_POINTS) return [];
  const placed: { x: number; y: number }[] = [];
  for (const time of [...times].sort((a, b) => a - b)) {
    const height = y(time);
    const free = sideways(reach).find((offset) =>
      placed.every((other) => Math.hypot(other.x - offset, other.y - height) >= 2 * POINT_RADIUS),
    );
    placed.push({ x: free ?? 0, y: height });
  }
  return placed.map(
    (point) =>
      html`<circle
        cx="${at(middle + point.x)}"
        cy="${at(point.y)}"
        r="${POINT_RADIUS}"
        fill="${colour}"
        fill-opacity="0.85"
      />`,
  );
}

/** 0, then alternately right and left in steps of a radius. */
function sideways(reach: number): number[] {
  const steps = Math.floor(reach / POINT_RADIUS);
  return Array.from({ length: 2 * steps + 1 }, (_, index) => {
    const step = Math.ceil(index / 2) * POINT_RADIUS;
    return index % 2 === 1 ? step : -step;
  });
}

function medianMark({ summary }: Cell, middle: number, band: number, y: ScaleLinear<number, number>): Html | undefined {
  if (summary.median === undefined || summary.median === 'censored') return undefined;
  const height = y(summary.median.seconds);
  const reach = band * 0.4;
  return html`<line
      x1="${at(middle - reach)}"
      x2="${at(middle + reach)}"
      y1="${at(height)}"
      y2="${at(height)}"
      stroke="var(--text)"
      stroke-width="2"
    />
    <text class="value" x="${at(middle + reach)}" y="${at(height - 6)}" text-anchor="end"
      >${summary.median.seconds.toFixed(3)} s</text
    >`;
}

function notCompleted({ summary }: Cell, middle: number): Html | undefined {
  const missing = summary.n - summary.completed;
  if (missing === 0) return undefined;
  const height = HEIGHT - MARGIN.bottom + 54;
  return html`<text class="bad" x="${at(middle)}" y="${height}" text-anchor="middle">${missing} unfinished</text>`;
}

function timesOf(cell: Cell): number[] {
  return cell.loads.flatMap(({ valid, time }) => (valid && time !== undefined ? [time] : []));
}

function inWords(cells: readonly Cell[]): string {
  const medians = cells.map(({ arm, summary: { median, n } }) => {
    const value = median === undefined || median === 'censored' ? 'none' : `${median.seconds.toFixed(4)} s`;
    return `${arm}: median ${value} of ${n} loads`;
  });
  return `Load times. ${medians.join('; ')}.`;
}
