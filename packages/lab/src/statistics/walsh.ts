import { ascending } from './rank-tests.js';
import type { Weights } from './weighted.js';

/**
 * The Walsh averages of values: the sorted means of all pairs, including each value with itself.
 *
 * They are never listed, which for thousands of blocks would take gigabytes, and for a thousand
 * resamples too long. A rank is found by bisection: two pointers along the sorted values count the
 * pairs below a value. When about as many pairs remain as there are values, those alone are listed.
 */
export class WalshAverages {
  /** The positions of the finite values, and for each the position of its value in `#sorted`. */
  readonly #finite: readonly number[];
  readonly #rank: Uint32Array;
  /** The distinct finite values in order: times are often whole milliseconds, so many are equal. */
  readonly #sorted: Float64Array;
  readonly #minus: readonly number[];
  readonly #plus: readonly number[];
  readonly #copies: Float64Array;
  /** Position of the last answer. Resamples differ little, so the next search starts there. */
  #near: number;
  readonly #step: number;

  constructor(values: readonly number[]) {
    this.#finite = values.flatMap((value, at) => (Number.isFinite(value) ? [at] : []));
    const finite = this.#finite.map((at) => values[at] as number);
    this.#sorted = Float64Array.from([...new Set(finite)].sort(ascending));
    const ranks = new Map([...this.#sorted].map((value, rank) => [value, rank]));
    this.#rank = Uint32Array.from(finite, (value) => ranks.get(value) as number);
    this.#minus = values.flatMap((value, at) => (value === -Infinity ? [at] : []));
    this.#plus = values.flatMap((value, at) => (value === Infinity ? [at] : []));
    const n = finite.length;
    this.#copies = new Float64Array(this.#sorted.length);
    const inOrder = finite.sort(ascending);
    this.#near = inOrder[n >> 1] ?? 0;
    const middleHalf = (inOrder[(3 * n) >> 2] ?? 0) - (inOrder[n >> 2] ?? 0);
    this.#step = middleHalf / Math.sqrt(Math.max(1, n));
  }

  /** Returns the number of averages. */
  count(weights: Weights): number {
    let n = 0;
    for (const copies of weights) n += copies;
    return (n * (n + 1)) / 2;
  }

  /** Returns the averages at two neighbouring ranks, or at one rank twice; 1 is the smallest. */
  at(weights: Weights, first: number, second: number): [number, number] {
    const copies = this.#copies;
    let finite = 0;
    copies.fill(0);
    this.#finite.forEach((place, at) => {
      const own = weights[place] as number;
      copies[this.#rank[at] as number] = (copies[this.#rank[at] as number] as number) + own;
      finite += own;
    });
    const [minus, plus] = [totalOf(weights, this.#minus), totalOf(weights, this.#plus)];
    // The mean of an infinite and a finite value is infinite; infinite values of opposite signs
    // cancel.
    const below = (minus * (minus + 1)) / 2 + minus * finite;
    const cancelled = minus * plus;
    const last = below + cancelled + (finite * (finite + 1)) / 2;
    const inside = (rank: number): boolean => rank > below && rank <= last;
    const found = this.#among(
      Math.max(first, below + 1) - below,
      Math.min(second, last) - below,
      finite,
      cancelled,
    );
    const outside = (rank: number): number => (rank <= below ? -Infinity : Infinity);
    return [inside(first) ? found[0] : outside(first), inside(second) ? found[1] : outside(second)];
  }

  #among(first: number, second: number, finite: number, cancelled: number): [number, number] {
    if (second < first) return [NaN, NaN];
    const upTo = (value: number): number =>
      pairsUpTo(this.#sorted, this.#copies, finite, value) + (value >= 0 ? cancelled : 0);
    let step = this.#step;
    let [low, high] = [this.#near - step, this.#near + step];
    let [underLow, underHigh] = [upTo(low), upTo(high)];
    while (underLow >= first) {
      step = widened(step, low);
      [low, high, underHigh] = [low - step, low, underLow];
      underLow = upTo(low);
    }
    while (underHigh < second) {
      step = widened(step, high);
      [low, high, underLow] =
        underHigh < first ? [high, high + step, underHigh] : [low, high + step, underLow];
      underHigh = upTo(high);
    }
    for (;;) {
      const middle = (low + high) / 2;
      if (underHigh - underLow <= this.#sorted.length || middle <= low || middle >= high) break;
      const under = upTo(middle);
      if (under < first) [low, underLow] = [middle, under];
      else if (under >= second) [high, underHigh] = [middle, under];
      else break;
    }
    const [one, other] = this.#listed(low, high, cancelled, first - underLow, second - underLow);
    this.#near = one;
    return [one, other];
  }

  /** Returns the averages above `low` and up to `high` at two ranks among themselves. */
  #listed(
    low: number,
    high: number,
    cancelled: number,
    first: number,
    second: number,
  ): [number, number] {
    const [sorted, copies] = [this.#sorted, this.#copies];
    const list: { mean: number; pairs: number }[] = [];
    if (cancelled > 0 && low < 0 && high >= 0) list.push({ mean: 0, pairs: cancelled });
    let last = sorted.length - 1;
    for (let at = 0; at < sorted.length; at++) {
      const [value, own] = [sorted[at] as number, copies[at] as number];
      while (last >= at && value + (sorted[last] as number) > 2 * high) last -= 1;
      if (own === 0) continue;
      for (let other = last; other >= at && value + (sorted[other] as number) > 2 * low; other--) {
        const pairs = other === at ? (own * (own + 1)) / 2 : own * (copies[other] as number);
        if (pairs > 0) list.push({ mean: (value + (sorted[other] as number)) / 2, pairs });
      }
    }
    list.sort((a, b) => a.mean - b.mean);
    let [seen, one] = [0, NaN];
    for (const { mean, pairs } of list) {
      if (seen < first && seen + pairs >= first) one = mean;
      seen += pairs;
      if (seen >= second) return [one, mean];
    }
    return [one, NaN];
  }
}

/** Returns twice the step, but at least one that changes `from`. */
function widened(step: number, from: number): number {
  return Math.max(2 * step, Math.abs(from) * 2 ** -40, Number.MIN_VALUE);
}

/** Counts the pairs of copies, including each with itself, whose mean is at most `value`. */
function pairsUpTo(sorted: Float64Array, copies: Float64Array, all: number, value: number): number {
  const limit = 2 * value;
  let partners = all;
  let last = sorted.length - 1;
  let [ordered, own] = [0, 0];
  for (let at = 0; at < sorted.length; at++) {
    const each = sorted[at] as number;
    while (last >= 0 && each + (sorted[last] as number) > limit)
      partners -= copies[last--] as number;
    if (last < 0) break;
    ordered += (copies[at] as number) * partners;
    if (2 * each <= limit) own += copies[at] as number;
  }
  return (ordered + own) / 2;
}

function totalOf(weights: Weights, places: readonly number[]): number {
  return places.reduce((sum, at) => sum + (weights[at] ?? 0), 0);
}
