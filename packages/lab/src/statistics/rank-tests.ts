/**
 * Wilcoxon's signed-rank test and the Mann-Whitney test, two-sided.
 *
 * Times and differences may be infinite: a load that did not complete is slower than all that did,
 * which is all that ranks need. Equal values share the mean of their ranks.
 */

import { normalCdf } from './distributions.js';

export interface RankTest {
  readonly p: number;
  /** Whether `p` is from enumerating all rank assignments instead of the normal distribution. */
  readonly exact: boolean;
}

/** Maximum number of nonzero differences for which all sign assignments are enumerated. */
const EXACT_DIFFERENCES = 50;
/** Maximum group size for which all assignments to groups are enumerated. */
const EXACT_GROUP = 20;
/** Clocks are coarser than this: smaller differences are ties with rounding errors. */
const TIE_SECONDS = 1e-9;

/**
 * Returns the minimum number of differences for which Wilcoxon's test can give a p below `alpha`:
 * if all n of them have one sign, p is 2 / 2^n.
 */
export function leastDifferences(alpha: number): number {
  return Math.floor(1 - Math.log2(alpha)) + 1;
}

/**
 * Tests whether paired differences are centred on zero. Zero differences have no direction and are
 * dropped.
 */
export function wilcoxonSignedRank(differences: readonly number[]): RankTest {
  const nonZero = differences.map(toTicks).filter((difference) => difference !== 0);
  const n = nonZero.length;
  if (n === 0) return { p: 1, exact: true };
  const ranks = midRanks(nonZero.map(Math.abs));
  const positive = sum(ranks.filter((_, at) => (nonZero[at] as number) > 0));
  if (n <= EXACT_DIFFERENCES) {
    const ways = signedRankWays(ranks);
    return { p: twoSided(ways, Math.round(2 * positive)), exact: true };
  }
  const mean = (n * (n + 1)) / 4;
  const variance = (n * (n + 1) * (2 * n + 1)) / 24 - tieTerm(ranks) / 48;
  return { p: normalTwoSided(positive - mean, variance), exact: false };
}

/** Tests whether two groups of values have the same location, ignoring pairs. */
export function mannWhitney(first: readonly number[], second: readonly number[]): RankTest {
  const [n, m] = [first.length, second.length];
  if (n === 0 || m === 0) return { p: 1, exact: true };
  const ranks = midRanks([...first, ...second].map(toTicks));
  const rankSum = sum(ranks.slice(0, n));
  if (n <= EXACT_GROUP && m <= EXACT_GROUP) {
    return { p: twoSided(rankSumWays(ranks, n), Math.round(2 * rankSum)), exact: true };
  }
  const total = n + m;
  const mean = (n * (total + 1)) / 2;
  const variance = ((n * m) / 12) * (total + 1 - tieTerm(ranks) / (total * (total - 1)));
  return { p: normalTwoSided(rankSum - mean, variance), exact: false };
}

/** Returns each p after Holm's adjustment for all of them, in the original order. */
export function holm(ps: readonly number[]): number[] {
  const order = ps.map((_, at) => at).sort((a, b) => (ps[a] as number) - (ps[b] as number));
  const adjusted = new Array<number>(ps.length);
  let largest = 0;
  order.forEach((at, rank) => {
    largest = Math.max(largest, Math.min(1, (ps[at] as number) * (ps.length - rank)));
    adjusted[at] = largest;
  });
  return adjusted;
}

/**
 * Returns the rank of each value, 1 for the smallest; equal values share the mean of their ranks.
 */
export function midRanks(values: readonly number[]): number[] {
  const order = values
    .map((_, at) => at)
    .sort((a, b) => ascending(values[a] as number, values[b] as number));
  const ranks = new Array<number>(values.length);
  for (let from = 0; from < order.length;) {
    let to = from + 1;
    while (to < order.length && values[order[to] as number] === values[order[from] as number])
      to += 1;
    for (let at = from; at < to; at++) ranks[order[at] as number] = (from + 1 + to) / 2;
    from = to;
  }
  return ranks;
}

/** Compares numbers that may be infinite. */
export function ascending(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

function toTicks(seconds: number): number {
  return Number.isFinite(seconds) ? Math.round(seconds / TIE_SECONDS) : seconds;
}

/**
 * Counts how often each sum of doubled ranks occurs when each rank is included or not. Doubling
 * makes shared ranks whole.
 */
function signedRankWays(ranks: readonly number[]): Float64Array {
  const doubled = ranks.map((rank) => Math.round(2 * rank));
  const ways = new Float64Array(sum(doubled) + 1);
  ways[0] = 1;
  let reach = 0;
  for (const rank of doubled) {
    reach += rank;
    for (let total = reach; total >= rank; total--)
      ways[total] = (ways[total] ?? 0) + (ways[total - rank] ?? 0);
  }
  return ways;
}

/** Counts how often each sum of doubled ranks occurs when `size` of them are picked. */
function rankSumWays(ranks: readonly number[], size: number): Float64Array {
  const doubled = ranks.map((rank) => Math.round(2 * rank));
  const ways = Array.from({ length: size + 1 }, () => new Float64Array(sum(doubled) + 1));
  (ways[0] as Float64Array)[0] = 1;
  doubled.forEach((rank, at) => {
    for (let picked = Math.min(size, at + 1); picked > 0; picked--) {
      const [to, from] = [ways[picked] as Float64Array, ways[picked - 1] as Float64Array];
      for (let total = to.length - 1; total >= rank; total--)
        to[total] = (to[total] ?? 0) + (from[total - rank] ?? 0);
    }
  });
  return ways[size] as Float64Array;
}

/** Returns twice the smaller tail at and beyond the observed value. */
function twoSided(ways: Float64Array, seen: number): number {
  const all = sum(ways);
  const below = sum(ways.subarray(0, seen + 1));
  const above = sum(ways.subarray(seen));
  return Math.min(1, (2 * Math.min(below, above)) / all);
}

/** Returns p from the normal distribution, with continuity correction. */
function normalTwoSided(distance: number, variance: number): number {
  if (variance <= 0) return 1;
  const z = Math.max(0, Math.abs(distance) - 0.5) / Math.sqrt(variance);
  return Math.min(1, 2 * normalCdf(-z));
}

/** Returns the sum of t³ − t over all groups of t equal values. */
function tieTerm(ranks: readonly number[]): number {
  const groups = new Map<number, number>();
  for (const rank of ranks) groups.set(rank, (groups.get(rank) ?? 0) + 1);
  return sum([...groups.values()].map((size) => size ** 3 - size));
}

function sum(values: Iterable<number>): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}
