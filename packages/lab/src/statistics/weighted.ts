/**
 * Figures of a sample in which each block has a weight: one in the sample itself, a random count in
 * a bootstrap resample, zero or one in the jackknife. The slow part, sorting, is done once for all
 * of them.
 *
 * Values may be infinite. Infinite values of opposite signs cancel: their mean is 0.
 */

import { ascending } from './rank-tests.js';
import { WalshAverages } from './walsh.js';

/** How often each block is in the sample. */
export type Weights = Uint32Array;

/** A figure of a sample. */
export type Statistic = (weights: Weights) => number;

/** Returns weights of one for each block. */
export function once(blocks: number): Weights {
  return new Uint32Array(blocks).fill(1);
}

/** Returns the middle value, or the mean of the two middle ones. */
export function median(values: readonly number[]): Statistic {
  const sorted = new Sorted(values);
  return (weights) => {
    const n = total(weights);
    return midpoint(...sorted.at(weights, Math.ceil(n / 2), Math.floor(n / 2) + 1));
  };
}

/**
 * Returns the nearest-rank percentile: the smallest value with at least that percentage of the
 * values at or below it.
 */
export function percentile(values: readonly number[], percent: number): Statistic {
  const sorted = new Sorted(values);
  return (weights) => {
    const rank = Math.max(1, Math.ceil((percent * total(weights)) / 100));
    return sorted.at(weights, rank, rank)[0];
  };
}

/** Returns the mean; infinite if any of the values is. */
export function mean(values: readonly number[]): Statistic {
  return (weights) => {
    let [sum, n] = [0, 0];
    values.forEach((value, at) => {
      const copies = weights[at] as number;
      // Skips infinite values that are not drawn: 0 × ∞ would make the sum NaN.
      if (copies > 0) sum += value * copies;
      n += copies;
    });
    return sum / n;
  };
}

/**
 * Returns one figure divided by another; 1 if both are infinite, since nothing distinguishes them.
 */
export function ratio(over: Statistic, under: Statistic): Statistic {
  return (weights) => {
    const [top, bottom] = [over(weights), under(weights)];
    return top === bottom ? 1 : top / bottom;
  };
}

/**
 * Returns the Hodges-Lehmann estimate of a shift: the median of the means of all pairs of values,
 * including each with itself.
 */
export function hodgesLehmann(values: readonly number[]): Statistic {
  const means = new WalshAverages(values);
  return (weights) => {
    const pairs = means.count(weights);
    return midpoint(...means.at(weights, Math.ceil(pairs / 2), Math.floor(pairs / 2) + 1));
  };
}

class Sorted {
  readonly #order: Uint32Array;
  readonly #values: Float64Array;

  constructor(values: readonly number[]) {
    this.#order = Uint32Array.from(values.keys()).sort((a, b) =>
      ascending(values[a] as number, values[b] as number),
    );
    this.#values = Float64Array.from(this.#order, (at) => values[at] as number);
  }

  /** Returns the values at two ranks, the first of which must not exceed the second. */
  at(weights: Weights, low: number, high: number): [number, number] {
    let seen = 0;
    let first: number | undefined;
    for (let at = 0; at < this.#order.length; at++) {
      seen += weights[this.#order[at] as number] as number;
      if (first === undefined && seen >= low) first = this.#values[at];
      if (seen >= high) return [first ?? NaN, this.#values[at] as number];
    }
    return [NaN, NaN];
  }
}

function midpoint(low: number, high: number): number {
  if (low === high) return low;
  return low === -Infinity && high === Infinity ? 0 : (low + high) / 2;
}

function total(weights: Weights): number {
  let sum = 0;
  for (const copies of weights) sum += copies;
  return sum;
}
