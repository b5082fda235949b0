import { compare, detectable, medianRatio, pairUp, type BlockTime, type Comparison } from './pairs.js';
import { controlVerdict, excludesNoEffect, type Control } from './control.js';
import { deriveSeed } from '../seed.js';
import type { Estimate } from '../statistics/bootstrap.js';
import { holm, leastDifferences } from '../statistics/rank-tests.js';

/** What is compared, the first before all. */
export const METRICS = ['load', 'firstByte', 'lcp'] as const;
export type Metric = (typeof METRICS)[number];

/** The valid loads of one arm in one place. */
export interface ComparedCell {
  readonly profile: string;
  readonly page?: string;
  readonly arm: string;
  /** The arm of which this one is the control, as the plan has it. A name says nothing of that. */
  readonly repeats?: string;
  /** The arm that it is compared with, null for none. Undefined: the baseline. */
  readonly comparedWith?: string | null;
  /** Blocks whose load painted something larger too late for it to count. */
  readonly latePaints?: readonly number[];
  /** Per metric; empty where the browser gave no such time. */
  readonly times: Readonly<Record<Metric, readonly BlockTime[]>>;
  /** The same of loads that count for nothing only because the machine was starved or the link late in their round. */
  readonly leftOutTimes?: Readonly<Record<Metric, readonly BlockTime[]>>;
}

/** Which loads are compared with which. */
export interface Place {
  readonly profile: string;
  readonly page?: string;
  readonly metric: Metric;
  readonly arm: string;
  readonly base: string;
}

export interface ArmComparison extends Place, Comparison {
  /** Blocks with a valid load of one of the two arms only. */
  readonly incompleteBlocks: number;
  /** Of the blocks, in how many each of the two came so far at all: to the load event, or to a first byte. */
  readonly reached: { readonly arm: number; readonly base: number };
  /** The p of Wilcoxon's test as it counts among all comparisons of the campaign; those of the control are not among them. */
  readonly holmP: number | undefined;
  readonly verdict: Verdict;
  /** What the figures would be with the rounds that are left out since the machine was starved or the link late; undefined where there are none. */
  readonly withAllRounds?: { readonly blocks: number; readonly medianRatio: Estimate | undefined };
}

export type Verdict =
  | { readonly kind: 'faster' | 'slower' }
  /** `ratio`: what would have been found with 80 % power; undefined where nothing finite would have been. */
  | { readonly kind: 'none-detected'; readonly ratio: number | undefined }
  /** `needed`: the blocks in which the first of so many comparisons can have a verdict. */
  | { readonly kind: 'too-few'; readonly needed: number; readonly comparisons: number }
  /** Paints of some of the loads came too late to count: an earlier one counts there, which may make the slower arm look the faster one. */
  | { readonly kind: 'late-paints'; readonly arm: number; readonly base: number }
  /** The same arm twice: whatever the interval shows is noise. Without an interval nothing is seen, no effect neither. */
  | { readonly kind: 'control'; readonly excludesNoEffect: boolean | undefined };

export interface CampaignComparisons {
  readonly base: string;
  readonly comparisons: readonly ArmComparison[];
  readonly control: Control;
}

/** The level of all comparisons of a campaign together. */
export const ALPHA = 0.05;

/** Compares each arm with the base in each place, and each control arm with the one that it is a copy of. */
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
  // Where no block has both loads, or nothing may be said, there is no test, so that it takes nothing from the others.
  const tested = all.filter((one) => !one.isControl && one.comparison.blocks > 0 && one.latePaints === undefined);
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
  readonly place: Place;
  readonly isControl: boolean;
  readonly pairs: ReturnType<typeof pairUp>['pairs'];
  readonly incompleteBlocks: number;
  readonly comparison: Comparison;
  readonly withAllRounds: ArmComparison['withAllRounds'];
  readonly latePaints: Extract<Verdict, { kind: 'late-paints' }> | undefined;
}

function compareTimes(cell: ComparedCell, partner: ComparedCell, metric: Metric, seed: number): Compared[] {
  const { pairs, incompleteBlocks } = pairUp(partner.times[metric], cell.times[metric]);
  if (metric !== 'load' && pairs.every(({ base, arm }) => base === Infinity && arm === Infinity)) return [];
  const { profile, page, arm, repeats } = cell;
  const place = { profile, ...(page !== undefined && { page }), metric, arm, base: partner.arm };
  const own = deriveSeed(seed, 'bootstrap', profile, page ?? '', metric, partner.arm, arm);
  const isControl = repeats !== undefined;
  const withAllRounds = compareWithAll(cell, partner, metric, own);
  const latePaints = metric === 'lcp' ? latePaintsOf(cell, partner, pairs) : undefined;
  return [{ place, isControl, pairs, incompleteBlocks, comparison: compare(pairs, own), withAllRounds, latePaints }];
}

function latePaintsOf(cell: ComparedCell, partner: ComparedCell, pairs: Compared['pairs']): Compared['latePaints'] {
  const count = ({ latePaints = [] }: ComparedCell): number =>
    pairs.filter(({ block }) => latePaints.includes(block)).length;
  const [arm, base] = [count(cell), count(partner)];
  return arm + base === 0 ? undefined : { kind: 'late-paints', arm, base };
}

/** Leaving rounds out is a choice by what machine and link did, which the loads have a part in: so what it changes is shown. */
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
  return pairs.length === without ? undefined : { blocks: pairs.length, medianRatio: medianRatio(pairs, seed) };
}

/** `tests`: how many comparisons Holm's adjustment is over. */
function verdictOf({ pairs, comparison }: Compared, holmP: number | undefined, tests: number): Verdict {
  // With as many slow as fast blocks the test has no direction, and finds nothing.
  if (holmP !== undefined && holmP < ALPHA && comparison.shift.value !== 0) {
    return { kind: comparison.shift.value < 0 ? 'faster' : 'slower' };
  }
  // One without any block is not among them; a block would make it one more.
  const comparisons = holmP === undefined ? tests + 1 : tests;
  const needed = blocksForVerdict(comparisons);
  if (holmP === undefined || pairs.length < needed) return { kind: 'too-few', needed, comparisons };
  return { kind: 'none-detected', ratio: detectable(pairs, ALPHA / tests) };
}

/**
 * In how many blocks one of so many comparisons can have a verdict: of the smallest p Holm asks that it be below ALPHA by
 * their number. Once that one is decided, the others need less.
 */
export function blocksForVerdict(comparisons: number): number {
  return leastDifferences(ALPHA / comparisons);
}

/**
 * Bootstrap intervals over fewer blocks are too narrow: in simulations those over 6 to 10 blocks leave the truth out in
 * 5 to 14 % of all cases, those over 20 in 4 to 8 %. A bench must not be blamed for that.
 */
export const LEAST_CONTROL_BLOCKS = 20;

/** The load times' ratio of each control pair: the one figure that a campaign is judged by. */
function controlIntervals(comparisons: readonly ArmComparison[]): { intervals: number; excluding: number } {
  const judged = comparisons.filter(
    ({ metric, verdict, blocks, medianRatio }) =>
      metric === 'load' && verdict.kind === 'control' && blocks >= LEAST_CONTROL_BLOCKS && medianRatio?.interval,
  );
  const excluding = judged.filter(({ medianRatio }) => excludesNoEffect(medianRatio)).length;
  return { intervals: judged.length, excluding };
}
