import { max } from 'd3-array';
import { scaleBand, scaleLinear, type ScaleLinear } from 'd3-scale';
import { area, curveLinear } from 'd3-shape';
import type { Cell } from './results.js';
import { density, type Density } from '../statistics/figures.js';
import { coordinate as at, html, type Html } from './html.js';

/**
 * Width for an arm's labels. A drawing is never scaled below that, since its text would shrink too:
 * it scrolls.
 */
const WIDTH_PER_ARM = 88;
const MIN_WIDTH = 256;
/** Maximum number of arms that are drawn larger on a wide screen. */
const FEW = 3;
const AXIS_WIDTH = 52;
const HEIGHT = 330;
const MARGIN = { top: 26, right: 6, bottom: 62, left: 4 };
const FEW_POINTS = 100;
/** Radius of a point by the maximum number of points. */
const RADII: readonly (readonly [points: number, radius: number])[] = [
  [FEW_POINTS, 3],
  [250, 2],
  [Infinity, 1.2],
];
/** Minimum sideways step between points that are too many to avoid overlap. */
const MIN_STEP = 0.5;

/**
 * Draws the cells of one profile and page side by side: a violin, the loads as points, the median,
 * and the number of loads that did not complete.
 *
 * All points of a cell are one path, so that ten thousand loads do not become as many elements.
 */
export function violinPlot(cells: readonly Cell[], colourOf: (arm: string) => string): Html {
  const width = Math.max(MIN_WIDTH, MARGIN.left + MARGIN.right + WIDTH_PER_ARM * cells.length);
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
  const words = inWords(cells);
  return html`<div
    class="violin ${cells.length <= FEW ? 'few' : ''}"
    role="region"
    tabindex="0"
    aria-label="${words}"
  >
    <svg
      class="scale"
      viewBox="0 0 ${AXIS_WIDTH} ${HEIGHT}"
      style="width:${AXIS_WIDTH}px"
      aria-hidden="true"
    >
      ${axisWords(y)}
    </svg>
    <svg
      class="plot"
      viewBox="0 0 ${width} ${HEIGHT}"
      style="width:${width}px"
      role="img"
      aria-label="${words}"
    >
      ${rules(y, width)}${violins}
    </svg>
  </div>`;
}

function axisWords(y: ScaleLinear<number, number>): Html[] {
  const ticks = y
    .ticks(5)
    .map(
      (tick) =>
        html`<text x="${AXIS_WIDTH - 6}" y="${at(y(tick))}" dy="0.32em" text-anchor="end"
          >${y.tickFormat(5)(tick)}</text
        >`,
    );
  const middle = (MARGIN.top + HEIGHT - MARGIN.bottom) / 2;
  const title = html`<text transform="translate(12 ${middle}) rotate(-90)" text-anchor="middle"
    >load time, s</text
  >`;
  return [...ticks, title];
}

function rules(y: ScaleLinear<number, number>, width: number): Html[] {
  return y.ticks(5).map((tick) => {
    const height = at(y(tick));
    return html`<line
      class="${tick === 0 ? 'base' : 'rule'}"
      x1="0"
      x2="${width - MARGIN.right}"
      y1="${height}"
      y2="${height}"
    />`;
  });
}

function violin(
  cell: Cell,
  middle: number,
  band: number,
  y: ScaleLinear<number, number>,
  colour: string,
): Html {
  const times = timesOf(cell);
  const curve = density(times);
  const base = HEIGHT - MARGIN.bottom;
  return html`<g>
    ${curve && shape(curve, middle, band * 0.36, y, colour)}
    ${points(times, curve, middle, band * 0.36, y, colour)} ${medianMark(cell, middle, band, y)}
    ${notCompleted(cell, middle)}
    <text class="label" x="${at(middle)}" y="${base + 20}" text-anchor="middle">${cell.arm}</text>
    <text x="${at(middle)}" y="${base + 37}" text-anchor="middle">n = ${cell.summary.n}</text>
  </g>`;
}

function shape(
  curve: Density,
  middle: number,
  reach: number,
  y: ScaleLinear<number, number>,
  colour: string,
): Html {
  const widest = max(curve, ([, share]) => share) ?? 1;
  const outline = area<readonly [number, number]>()
    .x0(([, share]) => middle - (reach * share) / widest)
    .x1(([, share]) => middle + (reach * share) / widest)
    .y(([value]) => y(value))
    .curve(curveLinear)
    .digits(2)([...curve]);
  return html`<path
    d="${outline ?? ''}"
    fill="${colour}"
    fill-opacity="0.22"
    stroke="${colour}"
    stroke-width="1.5"
  />`;
}

/** Draws the loads as points of one path: a line of zero length with round ends is a point. */
function points(
  times: readonly number[],
  curve: Density | undefined,
  middle: number,
  reach: number,
  y: ScaleLinear<number, number>,
  colour: string,
): Html | undefined {
  if (times.length === 0) return undefined;
  const radius = RADII.find(([most]) => times.length <= most)?.[1] ?? MIN_STEP;
  // A few points may extend beyond the shape, which is uncertain then; many fill it.
  const within =
    curve === undefined || times.length <= FEW_POINTS ? () => reach : widthOf(curve, reach, y);
  const path = swarm(times.map(y), radius, within).map(
    ([x, height]) => `M${tenth(middle + x)} ${tenth(height)}h0`,
  );
  return html`<path
    class="points"
    d="${path.join('')}"
    fill="none"
    stroke="${colour}"
    stroke-opacity="0.85"
    stroke-width="${2 * radius}"
    stroke-linecap="round"
  />`;
}

/** Returns how far the shape extends sideways at a height. */
function widthOf(
  curve: Density,
  reach: number,
  y: ScaleLinear<number, number>,
): (height: number) => number {
  const widest = max(curve, ([, share]) => share) ?? 1;
  const [low, high] = [curve[0]?.[0] ?? 0, curve.at(-1)?.[0] ?? 0];
  return (height) => {
    const nearest = Math.round(((y.invert(height) - low) / (high - low)) * (curve.length - 1));
    const share = curve[Math.min(curve.length - 1, Math.max(0, nearest))]?.[1] ?? widest;
    return (reach * share) / widest;
  };
}

/**
 * Moves each point sideways at its own height so that it does not cover points of nearly the same
 * height; returns `[x, height]` with x from the middle. Points of one band, a point high, are
 * placed beside each other. If `within` is too narrow for that, they overlap evenly.
 */
export function swarm(
  heights: readonly number[],
  radius: number,
  within: (height: number) => number,
): (readonly [number, number])[] {
  const bands = new Map<number, number[]>();
  for (const height of [...heights].sort((a, b) => b - a)) {
    const band = Math.floor(height / (2 * radius));
    const known = bands.get(band);
    if (known === undefined) bands.set(band, [height]);
    else known.push(height);
  }
  return [...bands].flatMap(([number, band]) => {
    const room = 2 * within((number + 0.5) * 2 * radius);
    const step = Math.max(MIN_STEP, Math.min(2 * radius, room / Math.max(1, band.length - 1)));
    const places = Math.floor(room / step) + 1;
    // Points of neighbouring bands are staggered instead of stacked.
    const shift = number % 2 === 0 || band.length >= places ? 0 : step / 2;
    return band.map((height, index) => [sideways(index % places) * step + shift, height] as const);
  });
}

/** Returns 0, then alternately left and right: -1, 1, -2, 2 … */
function sideways(index: number): number {
  const step = Math.ceil(index / 2);
  return index % 2 === 1 ? -step : step;
}

function tenth(value: number): string {
  return String(Math.round(value * 10) / 10);
}

function medianMark(
  { summary }: Cell,
  middle: number,
  band: number,
  y: ScaleLinear<number, number>,
): Html | undefined {
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
  return html`<text class="value" x="${at(middle)}" y="${height}" text-anchor="middle"
    >${missing} unfinished</text
  >`;
}

function timesOf(cell: Cell): number[] {
  return cell.loads.flatMap(({ valid, time }) => (valid && time !== undefined ? [time] : []));
}

function inWords(cells: readonly Cell[]): string {
  const medians = cells.map(({ arm, summary: { median, n } }) => {
    const value =
      median === undefined || median === 'censored' ? 'none' : `${median.seconds.toFixed(4)} s`;
    return `${arm}: median ${value} of ${n} loads`;
  });
  return `Load times. ${medians.join('; ')}.`;
}
