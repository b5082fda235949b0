/**
 * The comparison of one arm with another over pairs of loads, one pair a block.
 *
 * A load that did not complete has the time Infinity: it is slower than all that did, in each figure here. So the
 * difference of a pair is +∞ if only the arm's load did not complete, −∞ if only the other's, and 0 if neither did:
 * of the two nothing is known that would tell them apart. Ranks take these as they are. A median on such a load is
 * infinite; an interval that reaches one has no end on that side.
 */

import { bootstrap, LEAST_BLOCKS, type Estimate } from '../statistics/bootstrap.js';
import { detectableRatio } from '../statistics/detectable.js';
import { mannWhitney, wilcoxonSignedRank, type RankTest } from '../statistics/rank-tests.js';
import { hodgesLehmann, mean, median, percentile, ratio, type Statistic } from '../statistics/weighted.js';

/** The times of one block, in seconds; Infinity for a load that did not complete. */
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

/** Pairs, and how many blocks have a valid load of one arm only. */
export interface Pairs {
  readonly pairs: readonly Pair[];
  readonly incompleteBlocks: number;
}

export interface Comparison {
  readonly blocks: number;
  /** The arm's median by the base's. Undefined if both are on loads that did not complete. */
  readonly medianRatio: Estimate | undefined;
  readonly p90Ratio: Estimate | undefined;
  /** The Hodges-Lehmann shift of the paired differences, in seconds: negative where the arm is faster. */
  readonly shift: Estimate;
  readonly wilcoxon: RankTest;
  readonly mannWhitney: RankTest;
}

/** Joins the loads of two arms by block. A block whose load of either arm is missing or invalid has no pair. */
export function pairUp(base: readonly BlockTime[], arm: readonly BlockTime[]): Pairs {
  const others = new Map(arm.map(({ block, seconds }) => [block, seconds]));
  const pairs = base.flatMap(({ block, seconds }) => {
    const other = others.get(block);
    return other === undefined ? [] : [{ block, base: seconds, arm: other }];
  });
  const blocks = new Set([...base, ...arm].map(({ block }) => block));
  return { pairs, incompleteBlocks: blocks.size - pairs.length };
}

/** The arm's time less the base's; 0 if neither load completed. */
export function difference({ base, arm }: Pair): number {
  return base === arm ? 0 : arm - base;
}

/** Compares the arm with the base over the blocks. `seed` is that of the bootstrap. */
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

/** The 95 % interval of the ratio of medians alone, for the rule that ends a campaign. */
export function medianRatio(pairs: readonly Pair[], seed: number): Estimate | undefined {
  const [arm, base] = [median(pairs.map((pair) => pair.arm)), median(pairs.map((pair) => pair.base))];
  return isKnown(pairs.length, arm, base) ? bootstrap(pairs.length, { it: ratio(arm, base) }, seed).it : undefined;
}

/** Which figure of each arm a ratio is of. */
export type Figure = 'median' | 'p90' | 'p99' | 'mean';

/** A figure of paired or single times as the bootstrap takes it. */
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

/** The ratio above 1 that would have been found in these pairs with 80 % power by a test at level `alpha`. */
export function detectable(pairs: readonly Pair[], alpha: number): number | undefined {
  return detectableRatio(
    pairs.map(({ base, arm }) => (base === arm ? 0 : Math.log(arm / base))),
    alpha,
  );
}

/** Whether so few blocks can say anything at all. */
export function tooFew(blocks: number): boolean {
  return blocks < LEAST_BLOCKS;
}

function isKnown(blocks: number, over: Statistic, under: Statistic): boolean {
  if (blocks === 0) return false;
  const all = new Uint32Array(blocks).fill(1);
  return Number.isFinite(over(all)) || Number.isFinite(under(all));
}
