import { scaleLinear } from 'd3-scale';
import { area, curveStepAfter, line } from 'd3-shape';
import { coordinate, html, Html } from './html.js';

/** Width and height of drawings in units; they are stretched to the available space. */
export const WIDE = 1000;
export const HIGH = 100;

/** A point of a curve: a time in milliseconds and a value. */
export interface Point {
  readonly at: number;
  readonly value: number;
}

/** A time axis shared by drawings. */
export interface TimeAxis {
  readonly from: number;
  readonly to: number;
}

/** Returns a time's position on an axis in percent, clamped to its ends. */
export function percentAt({ from, to }: TimeAxis, at: number): number {
  return (Math.min(Math.max(at, from), to) - from) * (100 / (to - from));
}

/** Number of intervals of an axis; narrower ones cannot be distinguished. */
export const BINS = 400;

/** Splits an axis into intervals, and applies `collect` to the items of each. */
export function binned<T>(
  items: readonly T[],
  timeOf: (item: T) => number,
  axis: TimeAxis,
  collect: (items: readonly T[]) => number,
): Point[] {
  const bins = Array.from({ length: BINS }, (): T[] => []);
  const width = (axis.to - axis.from) / BINS;
  for (const item of items) {
    const at = timeOf(item);
    if (at > axis.to) continue;
    bins[Math.min(BINS - 1, Math.max(0, Math.floor((at - axis.from) / width)))]?.push(item);
  }
  return bins.map((those, index) => ({ at: axis.from + index * width, value: collect(those) }));
}

/**
 * Reduces a curve to at most two points per interval of the axis, the minimum and the maximum, so
 * that no peak is lost and a curve of any length stays small.
 */
export function thinned(points: readonly Point[], axis: TimeAxis): Point[] {
  if (points.length <= 2 * BINS) return [...points];
  const width = (axis.to - axis.from) / BINS;
  const kept: Point[] = [];
  let bin: Point[] = [];
  const flush = (): void => {
    const low = bin.reduce<Point | undefined>(
      (best, each) => (best && best.value <= each.value ? best : each),
      undefined,
    );
    const high = bin.reduce<Point | undefined>(
      (best, each) => (best && best.value >= each.value ? best : each),
      undefined,
    );
    kept.push(...[low, high].filter((each) => each !== undefined).sort((a, b) => a.at - b.at));
    bin = [];
  };
  for (const point of points) {
    const [first] = bin;
    if (first !== undefined && Math.floor(first.at / width) !== Math.floor(point.at / width))
      flush();
    bin.push(point);
  }
  flush();
  return kept;
}

/** Returns a step curve that keeps each value until the next, as a path attribute. */
export function stepPath(points: readonly Point[], axis: TimeAxis, max: number): string {
  return shape(points, axis, max, 'line');
}

/** Returns the area under a step curve, or between it and `floor`. */
export function stepArea(points: readonly Point[], axis: TimeAxis, max: number): string {
  return shape(points, axis, max, 'area');
}

function shape(
  points: readonly Point[],
  axis: TimeAxis,
  max: number,
  kind: 'line' | 'area',
): string {
  const x = (point: Point): number => percentAt(axis, point.at) * (WIDE / 100);
  const scale = scaleLinear([0, max], [HIGH, 2]);
  const y = (point: Point): number => scale(point.value);
  const make =
    kind === 'line'
      ? line<Point>(x, y).curve(curveStepAfter)
      : area<Point>(x, HIGH, y).curve(curveStepAfter);
  return (make(points) ?? '').replace(/\d+\.\d+/g, (number) => coordinate(Number(number)));
}

/**
 * Returns vertical lines over the whole height at the given times, as one path. Lines that would
 * coincide are merged.
 */
export function ticks(times: readonly number[], axis: TimeAxis): string {
  const places = new Set(times.map((at) => Math.round(percentAt(axis, at) * 10)));
  return [...places].map((place) => `M${place} 0V${HIGH}`).join('');
}

/** Returns a drawing that fills its space. Its shapes must tolerate being stretched. */
export function drawing(content: Html | readonly Html[], label: string): Html {
  return html`<svg
    viewBox="0 0 ${WIDE} ${HIGH}"
    preserveAspectRatio="none"
    role="img"
    aria-label="${label}"
  >
    ${content}
  </svg>`;
}

/** Formats bytes: 1234567 becomes "1.2 MB". */
export function formatBytes(bytes: number): string {
  if (bytes < 1_000) return `${Math.round(bytes)} B`;
  return bytes < 1_000_000
    ? `${significant(bytes / 1_000)} KB`
    : `${significant(bytes / 1_000_000)} MB`;
}

/** Formats a number with two significant digits, or all digits of a larger integer part. */
export function significant(value: number): string {
  return value >= 10 ? value.toFixed(0) : value.toFixed(1);
}
