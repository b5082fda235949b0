import {
  compare,
  detectable,
  medianRatio,
  pairUp,
  type BlockTime,
  type Comparison,
} from './pairs.js';
import { controlVerdict, excludesNoEffect, type Control } from './control.js';
import { deriveSeed } from '../campaign/seed.js';
import type { Estimate } from '../statistics/bootstrap.js';
import { holm, leastDifferences } from '../statistics/rank-tests.js';

/** Compared times; the load time comes first. */
export const METRICS = ['load', 'firstByte', 'lcp'] as const;
export type Metric = (typeof METRICS)[number];

/** The valid loads of one arm on one profile and page. */
export interface ComparedCell {
  readonly profile: string;
  readonly page?: string;
  readonly arm: string;
  /** The arm of which this one is a copy (A/A), from the plan; the name does not tell. */
  readonly repeats?: string;
  /** The arm that this one is compared with, null for none. Undefined: the baseline. */
  readonly comparedWith?: string | null;
  /** Blocks in which a larger paint came too late to count. */
  readonly latePaints?: readonly number[];
  /** Times per metric; empty if the browser reported none. */
  readonly times: Readonly<Record<Metric, readonly BlockTime[]>>;
  /**
   * Times of loads that are excluded only because the machine was starved or the link late in their
   * round.
   */
  readonly leftOutTimes?: Readonly<Record<Metric, readonly BlockTime[]>>;
}

/** Identifies the compared loads. */
export interface ComparisonKey {
  readonly profile: string;
  readonly page?: string;
  readonly metric: Metric;
  readonly arm: string;
  readonly base: string;
}

export interface ArmComparison extends ComparisonKey, Comparison {
  /** Number of blocks with a valid load of only one of the two arms. */
  readonly incompleteBlocks: number;
  /**
   * Number of blocks in which each arm's load reached the compared event, such as the load event.
   */
  readonly reached: { readonly arm: number; readonly base: number };
  /**
   * p of Wilcoxon's test after Holm's adjustment over all comparisons of the campaign except
   * controls.
   */
  readonly holmP: number | undefined;
  readonly verdict: Verdict;
  /**
   * Figures including the rounds that are excluded because the machine was starved or the link
   * late; undefined if there are none.
   */
  readonly withAllRounds?: { readonly blocks: number; readonly medianRatio: Estimate | undefined };
}

export type Verdict =
  | { readonly kind: 'faster' | 'slower' }
  /**
   * `ratio`: the ratio that would have been detected with 80 % power; undefined if no finite one
   * would.
   */
  | { readonly kind: 'none-detected'; readonly ratio: number | undefined }
  /** `needed`: number of blocks from which the first of so many comparisons can have a verdict. */
  | { readonly kind: 'too-few'; readonly needed: number; readonly comparisons: number }
  /**
   * Paints of some loads came too late to count. An earlier paint counts instead, which can make
   * the slower arm look faster.
   */
  | { readonly kind: 'late-paints'; readonly arm: number; readonly base: number }
  /**
   * The same arm twice: whatever the interval shows is noise. `excludesNoEffect` is undefined
   * without an interval.
   */
  | { readonly kind: 'control'; readonly excludesNoEffect: boolean | undefined };

export interface CampaignComparisons {
  readonly base: string;
  readonly comparisons: readonly ArmComparison[];
  readonly control: Control;
}

/** Significance level of all comparisons of a campaign together. */
export const ALPHA = 0.05;

/**
 * Compares each arm with its partner on each profile and page, and each control arm with its
 * original.
 */
export function compareCampaign(
  cells: readonly ComparedCell[],
  baseline: string | undefined,
  seed: number,
): CampaignComparisons {
  const base = baseline ?? cells[0]?.arm ?? '';
  const all = METRICS.flatMap((metric) =>
    cells.flatMap((cell) => {
      const other = cell.repeats ?? (cell.comparedWith === undefined ? base : cell.comparedWith);
      const partner = cells.find(
        ({ profile, page, arm }) => profile === cell.profile && page === cell.page && arm === other,
      );
      if (partner === undefined || partner === cell) return [];
      return compareTimes(cell, partner, metric, seed);
    }),
  );
  // Without a block with both loads, or if paints came too late, there is no test, so it does not
  // count in Holm's adjustment.
  const tested = all.filter(
    (one) => !one.isControl && one.comparison.blocks > 0 && one.latePaints === undefined,
  );
  const adjusted = holm(tested.map(({ comparison }) => comparison.wilcoxon.p));
  const comparisons = all.map((one): ArmComparison => {
    const holmP = adjusted[tested.indexOf(one)];
    const { place, pairs, comparison, incompleteBlocks } = one;
    const reached = {
      arm: pairs.filter(({ arm }) => arm < Infinity).length,
      base: pairs.filter((pair) => pair.base < Infinity).length,
    };
    const verdict: Verdict = one.isControl
      ? { kind: 'control', excludesNoEffect: excludesNoEffect(comparison.medianRatio) }
      : (one.latePaints ?? verdictOf(one, holmP, tested.length));
    const { withAllRounds } = one;
    return {
      ...place,
      ...comparison,
      incompleteBlocks,
      reached,
      holmP,
      verdict,
      ...(withAllRounds && { withAllRounds }),
    };
  });
  return { base, comparisons, control: controlVerdict(controlIntervals(comparisons)) };
}

interface Compared {
  readonly place: ComparisonKey;
  readonly isControl: boolean;
  readonly pairs: ReturnType<typeof pairUp>['pairs'];
  readonly incompleteBlocks: number;
  readonly comparison: Comparison;
  readonly withAllRounds: ArmComparison['withAllRounds'];
  readonly latePaints: Extract<Verdict, { kind: 'late-paints' }> | undefined;
}

function compareTimes(
  cell: ComparedCell,
  partner: ComparedCell,
  metric: Metric,
  seed: number,
): Compared[] {
  const { pairs, incompleteBlocks } = pairUp(partner.times[metric], cell.times[metric]);
  if (metric !== 'load' && pairs.every(({ base, arm }) => base === Infinity && arm === Infinity))
    return [];
  const { profile, page, arm, repeats } = cell;
  const place = { profile, ...(page !== undefined && { page }), metric, arm, base: partner.arm };
  const own = deriveSeed(seed, 'bootstrap', profile, page ?? '', metric, partner.arm, arm);
  const isControl = repeats !== undefined;
  const withAllRounds = compareWithAll(cell, partner, metric, own);
  const latePaints = metric === 'lcp' ? latePaintsOf(cell, partner, pairs) : undefined;
  return [
    {
      place,
      isControl,
      pairs,
      incompleteBlocks,
      comparison: compare(pairs, own),
      withAllRounds,
      latePaints,
    },
  ];
}

function latePaintsOf(
  cell: ComparedCell,
  partner: ComparedCell,
  pairs: Compared['pairs'],
): Compared['latePaints'] {
  const count = ({ latePaints = [] }: ComparedCell): number =>
    pairs.filter(({ block }) => latePaints.includes(block)).length;
  const [arm, base] = [count(cell), count(partner)];
  return arm + base === 0 ? undefined : { kind: 'late-paints', arm, base };
}

/**
 * Compares including the excluded rounds. Machine and link decide what is excluded, but the loads
 * influence both, so the effect of the exclusion is shown.
 */
function compareWithAll(
  cell: ComparedCell,
  partner: ComparedCell,
  metric: Metric,
  seed: number,
): ArmComparison['withAllRounds'] {
  const all = ({ times, leftOutTimes }: ComparedCell): readonly BlockTime[] => [
    ...times[metric],
    ...(leftOutTimes?.[metric] ?? []),
  ];
  const { pairs } = pairUp(all(partner), all(cell));
  const without = pairUp(partner.times[metric], cell.times[metric]).pairs.length;
  return pairs.length === without
    ? undefined
    : { blocks: pairs.length, medianRatio: medianRatio(pairs, seed) };
}

/** Returns the verdict. `tests` is the number of comparisons in Holm's adjustment. */
function verdictOf(
  { pairs, comparison }: Compared,
  holmP: number | undefined,
  tests: number,
): Verdict {
  // With equally many slower and faster blocks the shift has no direction, which is no finding.
  if (holmP !== undefined && holmP < ALPHA && comparison.shift.value !== 0) {
    return { kind: comparison.shift.value < 0 ? 'faster' : 'slower' };
  }
  // A comparison without a block is not among the tests; its first block would add one.
  const comparisons = holmP === undefined ? tests + 1 : tests;
  const needed = blocksForVerdict(comparisons);
  if (holmP === undefined || pairs.length < needed) return { kind: 'too-few', needed, comparisons };
  return { kind: 'none-detected', ratio: detectable(pairs, ALPHA / tests) };
}

/**
 * Returns the number of blocks from which one of so many comparisons can have a verdict. Holm
 * requires the smallest p to be below ALPHA divided by their number; once that one is decided, the
 * others need less.
 */
export function blocksForVerdict(comparisons: number): number {
  return leastDifferences(ALPHA / comparisons);
}

/**
 * Minimum number of blocks for judging a control. Bootstrap intervals over fewer blocks are too
 * narrow: in simulations, intervals over 6 to 10 blocks miss the true value in 5 to 14 % of all
 * cases, over 20 blocks in 4 to 8 %. A sound bench must not be blamed for that.
 */
export const MIN_CONTROL_BLOCKS = 20;

/** Returns the load time ratio of each control pair, the one figure that the bench is judged by. */
function controlIntervals(comparisons: readonly ArmComparison[]): {
  intervals: number;
  excluding: number;
} {
  const judged = comparisons.filter(
    ({ metric, verdict, blocks, medianRatio }) =>
      metric === 'load' &&
      verdict.kind === 'control' &&
      blocks >= MIN_CONTROL_BLOCKS &&
      medianRatio?.interval,
  );
  const excluding = judged.filter(({ medianRatio }) => excludesNoEffect(medianRatio)).length;
  return { intervals: judged.length, excluding };
}
