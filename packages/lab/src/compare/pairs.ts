/**
 * Comparison of two arms over pairs of loads, one pair per block.
 *
 * A load that did not complete has the time Infinity: in each figure here it is slower than all
 * that did. The difference of a pair is +∞ if only the arm's load did not complete, −∞ if only the
 * other's, and 0 if neither did, since nothing is known that distinguishes them. Rank tests work
 * with these values. A median that falls on such a load is infinite; an interval that reaches one
 * has no limit on that side.
 */

import { bootstrap, MIN_BLOCKS, type Estimate } from '../statistics/bootstrap.js';
import { detectableRatio } from '../statistics/detectable.js';
import { mannWhitney, wilcoxonSignedRank, type RankTest } from '../statistics/rank-tests.js';
import {
  hodgesLehmann,
  mean,
  median,
  percentile,
  ratio,
  type Statistic,
} from '../statistics/weighted.js';

/** The two times of a block, in seconds; Infinity for a load that did not complete. */
export interface Pair {
  readonly block: number;
  readonly base: number;
  readonly arm: number;
}

/** The time of a valid load, in seconds; Infinity for one that did not complete. */
export interface BlockTime {
  readonly block: number;
  readonly seconds: number;
}

/** Pairs, and the number of blocks with a valid load of only one arm. */
export interface Pairs {
  readonly pairs: readonly Pair[];
  readonly incompleteBlocks: number;
}

export interface Comparison {
  readonly blocks: number;
  /**
   * The arm's median divided by the base's. Undefined if both fall on loads that did not complete.
   */
  readonly medianRatio: Estimate | undefined;
  readonly p90Ratio: Estimate | undefined;
  /** The Hodges-Lehmann shift of the paired differences, in seconds: negative where the arm is faster. */
  readonly shift: Estimate;
  readonly wilcoxon: RankTest;
  readonly mannWhitney: RankTest;
}

/** Joins the loads of two arms by block. A block with a missing or invalid load has no pair. */
export function pairUp(base: readonly BlockTime[], arm: readonly BlockTime[]): Pairs {
  const others = new Map(arm.map(({ block, seconds }) => [block, seconds]));
  const pairs = base.flatMap(({ block, seconds }) => {
    const other = others.get(block);
    return other === undefined ? [] : [{ block, base: seconds, arm: other }];
  });
  const blocks = new Set([...base, ...arm].map(({ block }) => block));
  return { pairs, incompleteBlocks: blocks.size - pairs.length };
}

/** Returns the arm's time minus the base's; 0 if neither load completed. */
export function difference({ base, arm }: Pair): number {
  return base === arm ? 0 : arm - base;
}

/** Compares the arm with the base over the blocks. `seed` is the bootstrap's. */
export function compare(pairs: readonly Pair[], seed: number): Comparison {
  const differences = pairs.map(difference);
  const base = pairs.map((pair) => pair.base);
  const arm = pairs.map((pair) => pair.arm);
  const estimates = bootstrap(
    pairs.length,
    {
      medianRatio: ratio(median(arm), median(base)),
      p90Ratio: ratio(percentile(arm, 90), percentile(base, 90)),
      shift: hodgesLehmann(differences),
    },
    seed,
  );
  const known = (one: Estimate, over: Statistic, under: Statistic): Estimate | undefined =>
    isKnown(pairs.length, over, under) ? one : undefined;
  return {
    blocks: pairs.length,
    medianRatio: known(estimates.medianRatio, median(arm), median(base)),
    p90Ratio: known(estimates.p90Ratio, percentile(arm, 90), percentile(base, 90)),
    shift: estimates.shift,
    wilcoxon: wilcoxonSignedRank(differences),
    mannWhitney: mannWhitney(arm, base),
  };
}

/** Returns the ratio of medians with its 95 % interval, for the stopping rule. */
export function medianRatio(pairs: readonly Pair[], seed: number): Estimate | undefined {
  const [arm, base] = [
    median(pairs.map((pair) => pair.arm)),
    median(pairs.map((pair) => pair.base)),
  ];
  return isKnown(pairs.length, arm, base)
    ? bootstrap(pairs.length, { it: ratio(arm, base) }, seed).it
    : undefined;
}

/** The figure of each arm that a ratio is computed from. */
export type Figure = 'median' | 'p90' | 'p99' | 'mean';

/** Returns a figure of paired or single times in the form that the bootstrap takes. */
export function statisticOf(figure: Figure, times: readonly number[]): Statistic {
  switch (figure) {
    case 'median':
      return median(times);
    case 'p90':
      return percentile(times, 90);
    case 'p99':
      return percentile(times, 99);
    case 'mean':
      return mean(times);
  }
}

/**
 * Returns the ratio above 1 that a test at level `alpha` would have detected in these pairs with 80
 * % power.
 */
export function detectable(pairs: readonly Pair[], alpha: number): number | undefined {
  return detectableRatio(
    pairs.map(({ base, arm }) => (base === arm ? 0 : Math.log(arm / base))),
    alpha,
  );
}

/** Returns whether there are too few blocks for any statement. */
export function tooFew(blocks: number): boolean {
  return blocks < MIN_BLOCKS;
}

function isKnown(blocks: number, over: Statistic, under: Statistic): boolean {
  if (blocks === 0) return false;
  const all = new Uint32Array(blocks).fill(1);
  return Number.isFinite(over(all)) || Number.isFinite(under(all));
}
