/** Distribution-free intervals: binomial, from the ranks of the values alone. */

import { CONFIDENCE } from './bootstrap.js';
import { betaQuantile, binomialCdf } from './distributions.js';

/**
 * Ranks of the values that enclose a quantile, 1 for the smallest. Undefined if there is no such
 * value.
 */
export interface RankInterval {
  readonly low: number | undefined;
  readonly high: number | undefined;
}

const TAIL = (1 - CONFIDENCE) / 2;

/**
 * Returns the ranks of the values that enclose a quantile with 95 % confidence, with at most 2.5 %
 * on either side.
 *
 * Of `n` loads, the number below the quantile is binomial. If even the largest is likely to be
 * below it, there is no upper end: the true p99 of 50 loads can be anything.
 */
export function quantileRanks(n: number, percent: number): RankInterval {
  const share = percent / 100;
  let low = 0;
  while (low < n && binomialCdf(low, n, share) <= TAIL) low += 1;
  let high = n + 1;
  while (high > 1 && 1 - binomialCdf(high - 2, n, share) <= TAIL) high -= 1;
  return { low: low === 0 ? undefined : low, high: high === n + 1 ? undefined : high };
}

/**
 * Returns the number of values from which a quantile has an upper end: where `share^n` is at most
 * 2.5 %.
 */
export function boundedFrom(percent: number): number {
  return Math.ceil(Math.log(TAIL) / Math.log(percent / 100));
}

/** Returns the 95 % interval of a proportion with `hits` of `n`, after Clopper and Pearson. */
export function shareInterval(
  hits: number,
  n: number,
): { readonly low: number; readonly high: number } {
  return {
    low: hits === 0 ? 0 : betaQuantile(TAIL, hits, n - hits + 1),
    high: hits === n ? 1 : betaQuantile(1 - TAIL, hits + 1, n - hits),
  };
}
