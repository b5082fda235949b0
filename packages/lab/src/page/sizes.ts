import { uniformFloat64 } from 'pure-rand/distribution/uniformFloat64';
import type { RandomGenerator } from 'pure-rand/types/RandomGenerator';
import { shuffled } from '../campaign/seed.js';

/** Minimum size of a resource: the size of a real font with a long name, plus a margin. */
export const MIN_BYTES = 1024;

/** The size parameters of a group. */
export interface GroupSizes {
  readonly count: number;
  readonly total_bytes?: number | undefined;
  readonly median_bytes?: number | undefined;
  readonly p90_bytes?: number | undefined;
}

/** Standard deviations between the median and the 90th percentile of a normal distribution. */
const Z90 = 1.2815515655446004;
/**
 * Maximum spread, beyond that of any web page: the largest of three resources would be e^8 times
 * the median.
 */
const MAX_SPREAD = 8;

/**
 * Returns the sizes of a group's members.
 *
 * With a median they follow a log-normal distribution, approximately like sizes on the web: few
 * large ones make up most of the bytes. They are the distribution's quantiles in random order
 * instead of random draws, so that each seed has the requested shape.
 */
export function sizesOf(group: GroupSizes, random: RandomGenerator): number[] {
  const { count, total_bytes: total, median_bytes: median, p90_bytes: p90 } = group;
  if (median === undefined) return similar(count, total ?? 0, random);
  const spread =
    p90 === undefined ? spreadFor(count, median, total ?? 0) : Math.log(p90 / median) / Z90;
  const sizes = logNormal(count, median, spread);
  if (total !== undefined) {
    const rest = total - sum(sizes);
    sizes[count - 1] = (sizes[count - 1] as number) + rest;
  }
  return shuffled(sizes, random);
}

/** Returns sizes that differ by up to a factor of two and add up to exactly `total`. */
function similar(count: number, total: number, random: RandomGenerator): number[] {
  const weights = Array.from({ length: count }, () => 2 ** (uniformFloat64(random) - 0.5));
  const whole = sum(weights);
  const result = weights.map((weight) => Math.floor((total * weight) / whole));
  result[0] = (result[0] as number) + total - sum(result);
  return result;
}

/** Returns quantiles in ascending order; the largest absorbs the rounding. */
function logNormal(count: number, median: number, spread: number): number[] {
  return Array.from({ length: count }, (_, at) =>
    Math.max(MIN_BYTES, Math.floor(median * Math.exp(spread * normalQuantile((at + 0.5) / count)))),
  );
}

/**
 * Returns the spread with which so many sizes around `median` add up to no more than `total`, by
 * bisection.
 */
function spreadFor(count: number, median: number, total: number): number {
  let [low, high] = [0, MAX_SPREAD];
  for (let step = 0; step < 50; step++) {
    const middle = (low + high) / 2;
    if (sum(logNormal(count, median, middle)) <= total) low = middle;
    else high = middle;
  }
  return low;
}

/**
 * Returns the quantile of the standard normal distribution, to 4.5e-4 (Abramowitz and Stegun,
 * 26.2.23).
 */
function normalQuantile(probability: number): number {
  if (probability > 0.5) return -normalQuantile(1 - probability);
  const t = Math.sqrt(-2 * Math.log(probability));
  const numerator = 2.515517 + t * (0.802853 + t * 0.010328);
  const denominator = 1 + t * (1.432788 + t * (0.189269 + t * 0.001308));
  return numerator / denominator - t;
}

function sum(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0);
}
