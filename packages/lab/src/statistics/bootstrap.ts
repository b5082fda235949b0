/**
 * Bootstrap intervals over blocks: whole blocks are drawn with replacement, so that what the loads
 * of a block have in common stays together.
 *
 * The intervals are bias-corrected and accelerated (BCa). That needs resamples on both sides of the
 * estimate, and finite figures when any one block is removed; otherwise the interval is made of
 * plain percentiles, and `method` says so. Interval ends are existing resamples, rounded outwards,
 * since there is no middle between a finite and an infinite time.
 */

import { uniformInt } from 'pure-rand/distribution/uniformInt';
import { generator } from '../campaign/seed.js';
import { normalCdf, normalQuantile } from './distributions.js';
import { once, type Statistic, type Weights } from './weighted.js';

export interface Interval {
  /** Infinite if the interval is unbounded. */
  readonly low: number;
  readonly high: number;
  readonly method: 'bca' | 'percentile';
}

export interface Estimate {
  readonly value: number;
  /** Undefined if there are too few blocks. */
  readonly interval: Interval | undefined;
}

export const CONFIDENCE = 0.95;

/**
 * Minimum number of values whose extremes enclose the median with 95 % confidence: 1 − 2 × 0.5^n ≥
 * 0.95.
 */
export const MIN_BLOCKS = 6;

/**
 * Number of resamples: with so many, the ends of an interval move by about a hundredth of its width
 * between seeds.
 */
const RESAMPLES = 9_999;
/**
 * Above this number of blocks there are fewer resamples: they cost more, and the figures are
 * smoother.
 */
const MANY_BLOCKS = 200;
const RESAMPLES_OF_MANY = 1_999;

/** Returns the number of resamples for so many blocks. */
export function resamplesFor(blocks: number): number {
  return blocks > MANY_BLOCKS ? RESAMPLES_OF_MANY : RESAMPLES;
}

/** Estimates each statistic over the blocks, with 95 % intervals from the same resamples. */
export function bootstrap<Name extends string>(
  blocks: number,
  statistics: Readonly<Record<Name, Statistic>>,
  seed: number,
): Record<Name, Estimate> {
  const names = Object.keys(statistics) as Name[];
  const count = resamplesFor(blocks);
  const replicates = names.map(() => new Float64Array(blocks < MIN_BLOCKS ? 0 : count));
  if (blocks >= MIN_BLOCKS) {
    const random = generator(seed);
    const weights = new Uint32Array(blocks);
    for (let resample = 0; resample < count; resample++) {
      weights.fill(0);
      for (let draw = 0; draw < blocks; draw++) {
        const block = uniformInt(random, 0, blocks - 1);
        weights[block] = (weights[block] ?? 0) + 1;
      }
      names.forEach(
        (name, at) => ((replicates[at] as Float64Array)[resample] = statistics[name](weights)),
      );
    }
  }
  const all = once(blocks);
  return Object.fromEntries(
    names.map((name, at) => {
      const value = statistics[name](all);
      const own = (replicates[at] as Float64Array).sort();
      return [
        name,
        {
          value,
          interval: own.length === 0 ? undefined : intervalOf(value, own, statistics[name], all),
        },
      ];
    }),
  ) as Record<Name, Estimate>;
}

function intervalOf(
  value: number,
  sorted: Float64Array,
  statistic: Statistic,
  all: Weights,
): Interval {
  const tail = (1 - CONFIDENCE) / 2;
  const shares = bcaShares(value, sorted, statistic, all, tail);
  const [low, high] = shares ?? [tail, 1 - tail];
  return {
    low: sorted[Math.max(0, Math.floor(low * (sorted.length + 1)) - 1)] as number,
    high: sorted[Math.min(sorted.length - 1, Math.ceil(high * (sorted.length + 1)) - 1)] as number,
    method: shares === undefined ? 'percentile' : 'bca',
  };
}

/**
 * Returns the shares of the resamples at the ends of a BCa interval; undefined if there is none.
 */
function bcaShares(
  value: number,
  sorted: Float64Array,
  statistic: Statistic,
  all: Weights,
  tail: number,
): [number, number] | undefined {
  const below = lowerBound(sorted, value);
  const upTo = upperBound(sorted, value);
  const bias = normalQuantile((below + upTo) / (2 * sorted.length));
  const acceleration = accelerationOf(statistic, all);
  if (!Number.isFinite(bias) || acceleration === undefined) return undefined;
  const share = (at: number): number => {
    const z = bias + normalQuantile(at);
    return normalCdf(bias + z / (1 - acceleration * z));
  };
  return [share(tail), share(1 - tail)];
}

/**
 * Returns the skewness of the jackknife divided by 6: how fast the figure's spread changes with the
 * figure.
 */
function accelerationOf(statistic: Statistic, all: Weights): number | undefined {
  const weights = all.slice();
  const left = Array.from(all, (_, block) => {
    weights[block] = 0;
    const value = statistic(weights);
    weights[block] = 1;
    return value;
  });
  const mean = left.reduce((sum, value) => sum + value, 0) / left.length;
  let [squares, cubes] = [0, 0];
  for (const value of left) {
    squares += (mean - value) ** 2;
    cubes += (mean - value) ** 3;
  }
  const acceleration = cubes / (6 * squares ** 1.5);
  return Number.isFinite(acceleration) ? acceleration : undefined;
}

function lowerBound(sorted: Float64Array, value: number): number {
  let at = 0;
  while (at < sorted.length && (sorted[at] as number) < value) at += 1;
  return at;
}

function upperBound(sorted: Float64Array, value: number): number {
  let at = lowerBound(sorted, value);
  while (at < sorted.length && (sorted[at] as number) === value) at += 1;
  return at;
}
