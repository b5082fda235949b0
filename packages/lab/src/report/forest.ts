import { scaleLog, type ScaleLogarithmic } from 'd3-scale';
import type { ArmComparison } from '../compare/compare-campaign.js';
import { formatRatio } from '../compare/comparison-text.js';
import { html, type Html } from './html.js';

/** Axis ticks of a ratio figure, shown where there is space. */
const TICKS = [
  0.05, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20,
];
/** Minimum distance of two ticks, in percent of the width: space for a number on a phone. */
const TICK_ROOM = 11;
/**
 * Minimum extent of the axis, however narrow the intervals are: a few percent must not look large.
 */
const MIN_REACH = 1.1;

/**
 * Draws ratios of medians with their intervals, one row each, on one logarithmic axis: half as long
 * is as far from 1 as twice as long. An unbounded interval ends in an arrow. The figures are
 * printed beside it, for readers who cannot see the drawing.
 */
export function forest(
  comparisons: readonly ArmComparison[],
  colourOf: (arm: string) => string,
): Html {
  const x = axis(comparisons);
  const one = x(1).toFixed(2);
  const rows = comparisons.map((comparison) => row(comparison, x, colourOf(comparison.arm)));
  const ticks = ticksOf(x).map(
    (tick) => html`<span style="left:${x(tick).toFixed(2)}%">${String(tick)}</span>`,
  );
  return html`<div class="forest" style="--one:${one}%">
    ${rows}
    <div class="axis" aria-hidden="true">
      <span></span>
      <span class="track">${ticks}</span>
      <span class="soft">← faster · slower →</span>
    </div>
  </div>`;
}

function row(comparison: ArmComparison, x: ScaleLogarithmic<number, number>, colour: string): Html {
  const { arm, base, blocks, page, profile, medianRatio, verdict } = comparison;
  const where = page === undefined ? profile : `${profile}, ${page}`;
  return html`<div class="ratio">
    <span class="who"><b>${arm}</b> / ${base} <span class="soft">${where}</span></span>
    <span class="track" aria-hidden="true"
      >${medianRatio === undefined ? undefined : mark(medianRatio, x, colour)}</span
    >
    <span class="${verdict.kind === 'faster' || verdict.kind === 'slower' ? 'found' : 'soft'}"
      >${blocks === 0 ? '-' : formatRatio(medianRatio)}</span
    >
  </div>`;
}

function mark(
  { value, interval }: NonNullable<ArmComparison['medianRatio']>,
  x: ScaleLogarithmic<number, number>,
  colour: string,
): Html {
  const [low, high] = x.domain() as [number, number];
  const at = (ratio: number): number => x(Math.min(high, Math.max(low, ratio)));
  const bar =
    interval === undefined
      ? undefined
      : html`<i
            style="left:${at(interval.low).toFixed(2)}%;right:${(100 - at(interval.high)).toFixed(2)}%"
          ></i>
          ${interval.low < low ? html`<u class="left">◂</u>` : undefined}
          ${interval.high > high ? html`<u class="right">▸</u>` : undefined}`;
  return html`<span style="color:${colour}"
    >${bar}<b style="left:${at(value).toFixed(2)}%"></b
  ></span>`;
}

/** Returns an axis as wide as the finite ends require, but never so narrow that noise fills it. */
function axis(comparisons: readonly ArmComparison[]): ScaleLogarithmic<number, number> {
  const ends = comparisons.flatMap(({ medianRatio }) => [
    medianRatio?.value,
    medianRatio?.interval?.low,
    medianRatio?.interval?.high,
  ]);
  const finite = ends.flatMap((end) =>
    end !== undefined && end > 0 && Number.isFinite(end) ? [end] : [],
  );
  const low = Math.min(1 / MIN_REACH, ...finite) / 1.03;
  const high = Math.max(MIN_REACH, ...finite) * 1.03;
  return scaleLog([low, high], [0, 100]);
}

/** Returns 1, and outwards from there the ticks that have space. */
function ticksOf(x: ScaleLogarithmic<number, number>): number[] {
  const [low, high] = x.domain() as [number, number];
  const shown = [1];
  const outwards = TICKS.filter((tick) => tick !== 1 && tick > low && tick < high).sort(
    (a, b) => Math.abs(Math.log(a)) - Math.abs(Math.log(b)),
  );
  for (const tick of outwards.reverse()) {
    if (shown.every((other) => Math.abs(x(tick) - x(other)) >= TICK_ROOM)) shown.push(tick);
  }
  return shown;
}
