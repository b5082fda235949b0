/** Wording of comparisons, shared by table, Markdown and report. */

import {
  ALPHA,
  MIN_CONTROL_BLOCKS,
  type ArmComparison,
  type CampaignComparisons,
  type Metric,
} from './compare-campaign.js';
import type { Control } from './control.js';
import { resamplesFor, type Estimate } from '../statistics/bootstrap.js';
import type { TwoModes } from '../statistics/modes.js';

export const METRIC_NAMES: Readonly<Record<Metric, string>> = {
  load: 'load',
  firstByte: 'first byte',
  lcp: 'largest paint',
};

const REACHED: Readonly<Record<Metric, string>> = {
  load: 'loaded',
  firstByte: 'had a first byte',
  lcp: 'had a largest paint',
};
const NEVER: Readonly<Record<Metric, string>> = {
  load: 'no load completed',
  firstByte: 'no first byte',
  lcp: 'no largest paint',
};

const NONE = 'none';

/** Returns a ratio with its interval: "0.912 [0.880, 0.951]". */
export function formatRatio(ratio: Estimate | undefined): string {
  if (ratio === undefined) return NONE;
  return estimate(ratio, (value) =>
    value === Infinity ? NONE : value === 0 ? '0' : value.toFixed(3),
  );
}

/** Returns a shift in milliseconds with its interval: "-85.8 [-114.8, -55.2]". */
export function formatShift(shift: Estimate): string {
  return estimate(shift, (value) => {
    if (!Number.isFinite(value)) return value > 0 ? NONE : `-${NONE}`;
    const text = (1000 * value).toFixed(1);
    return text === '-0.0' ? '0.0' : text;
  });
}

export function formatP(p: number | undefined): string {
  if (p === undefined) return '-';
  return p < 0.0001 ? '<0.0001' : p.toFixed(4);
}

/**
 * Returns the verdict. If one arm never reached the event, that is the finding, not how slow it is.
 */
export function describeVerdict(comparison: ArmComparison): string {
  const { arm, base, verdict, reached, blocks, metric } = comparison;
  const shares = `${arm} ${reached.arm} of ${blocks}, ${base} ${reached.base} of ${blocks}`;
  if (blocks > 0 && reached.arm === 0 && reached.base === 0)
    return `${NEVER[metric]} in either arm: ${shares}`;
  const never =
    blocks === 0 ? undefined : reached.arm === 0 ? arm : reached.base === 0 ? base : undefined;
  switch (verdict.kind) {
    case 'faster':
    case 'slower': {
      if (never !== undefined) return `${never}: ${NEVER[metric]}; ${shares}`;
      const all = reached.arm === blocks && reached.base === blocks;
      return `${all ? '' : `${REACHED[metric]}: ${shares}; `}${arm} is ${verdict.kind}`;
    }
    case 'none-detected': {
      const size = verdict.ratio === undefined ? undefined : formatPercent(verdict.ratio);
      return size === undefined
        ? 'no difference detected; none of any size would have been found with 80 % power'
        : `no difference detected; one of ${size} would have been found with 80 % power`;
    }
    case 'late-paints': {
      const counts = `${arm} ${verdict.arm} of ${blocks}, ${base} ${verdict.base} of ${blocks}`;
      return `no verdict: larger paints came too late to count (${counts})`;
    }
    case 'too-few': {
      const seen = never === undefined ? '' : `${never}: ${NEVER[metric]}; ${shares}; `;
      return `${seen}too few blocks: with ${plural(verdict.comparisons, 'comparison')} a verdict needs ${verdict.needed}`;
    }
    case 'control': {
      if (verdict.excludesNoEffect === undefined)
        return `control: ${base} twice, too few blocks for an interval`;
      return `control: ${base} twice, ${verdict.excludesNoEffect ? 'the interval excludes a ratio of 1' : 'no effect detected'}`;
    }
  }
}

/**
 * Explains a row whose ratio and shift point in different directions; undefined for the others. The
 * two figures answer different questions, so both can be right.
 */
export function describeDisagreement({
  arm,
  blocks,
  medianRatio,
  shift,
  verdict,
}: ArmComparison): string | undefined {
  if (blocks === 0 || medianRatio === undefined) return undefined;
  // Compares the values as displayed: what rounds to "no difference" has no direction.
  const ratio = Number(medianRatio.value.toFixed(3)) - 1;
  const milliseconds = Number((1000 * shift.value).toFixed(1));
  if (!(ratio * milliseconds < 0)) return undefined;
  const [median, within] = ratio > 0 ? ['slower', 'faster'] : ['faster', 'slower'];
  const decided = verdict.kind === 'faster' || verdict.kind === 'slower';
  return (
    `Ratio and shift point in different directions: ${arm} has the ${median} median over all blocks, but by the differences within ` +
    `blocks it is the ${within} one. The ratio compares the median loads of the two arms, the shift the two ` +
    'loads of each block. ' +
    (decided ? 'The verdict is based on the blocks.' : 'Neither is a verdict.')
  );
}

/**
 * Lists the load time ratios including the rounds that are excluded because the machine was starved
 * or the link late.
 */
function describeAllRounds(comparisons: readonly ArmComparison[]): string[] {
  const lines = comparisons.flatMap(
    ({ metric, profile, page, arm, base, blocks, medianRatio, withAllRounds }) => {
      if (metric !== 'load' || withAllRounds === undefined) return [];
      const place = page === undefined ? profile : `${profile}, ${page}`;
      const all = `${formatRatio(withAllRounds.medianRatio)} over ${withAllRounds.blocks}`;
      return [
        `${place}: ${arm} / ${base} ${all}, instead of ${formatRatio(medianRatio)} over ${blocks}.`,
      ];
    },
  );
  return lines.length === 0
    ? []
    : [
        'Blocks in which the machine was starved or the link late are excluded. Including them, the ratios of the load times are:',
        ...lines,
      ];
}

/** Returns the notes needed to read the comparisons, one per line. */
export function comparisonNotes({ base, comparisons, control }: CampaignComparisons): string[] {
  if (comparisons.length === 0) return [];
  const most = Math.max(...comparisons.map(({ blocks }) => blocks));
  const tests = comparisons.filter(({ holmP }) => holmP !== undefined).length;
  const missing = comparisons
    .filter(({ metric }) => metric === 'load')
    .reduce((sum, one) => sum + one.incompleteBlocks, 0);
  const percentile = comparisons.some(({ medianRatio, shift }) =>
    [medianRatio?.interval, shift.interval].some((interval) => interval?.method === 'percentile'),
  );
  const bases = new Set(
    comparisons.filter(({ verdict }) => verdict.kind !== 'control').map((one) => one.base),
  );
  // Other visits and controllers have other partners.
  const [several, its] = bases.size > 1 ? ['the arm after the slash', 'that arm'] : [base, base];
  return [
    `Each arm is compared with ${several} over the blocks with a valid load of both. Ratio: the arm's median divided by that of ${its}; below 1 is faster. ` +
      'Shift: the median of all pairwise means of the differences (Hodges-Lehmann), in milliseconds. ' +
      `[ ]: 95 % BCa bootstrap over blocks, ${resamplesFor(most)} resamples.`,
    `p: Wilcoxon's signed-rank test, two-sided, Holm-adjusted over all ${tests} comparisons; a verdict needs p < ${ALPHA}.`,
    ...(percentile ? ['Where BCa is undefined, the interval is a percentile interval.'] : []),
    ...(missing > 0
      ? [
          `${missing} ${missing === 1 ? 'pair is' : 'pairs are'} missing, because the load of one arm is invalid.`,
        ]
      : []),
    ...describeAllRounds(comparisons),
    ...(comparisons.some(isUnbounded)
      ? [
          `"${NONE}", or a ratio of 0, marks an end without a number: a load that did not complete counts as slower than all others.`,
        ]
      : []),
    ...disagreements(comparisons),
    describeControl(control, comparisons),
  ];
}

/** Returns what the control says about the bench. */
export function describeControl(control: Control, comparisons: readonly ArmComparison[]): string {
  const { intervals, excluding, allowed, verdict } = control;
  switch (verdict) {
    case 'none':
      return comparisons.some((one) => one.verdict.kind === 'control')
        ? `The control is not judged: intervals over fewer than ${MIN_CONTROL_BLOCKS} blocks are too narrow.`
        : 'There is no control: no arm was loaded twice.';
    case 'good':
      return `Control: of ${plural(intervals, 'A/A interval')} ${excluding} exclude a ratio of 1; chance explains up to ${allowed}.`;
    case 'repair-the-bench':
      return `The bench is at fault: of ${plural(intervals, 'A/A interval')} ${excluding} exclude a ratio of 1, but chance explains at most ${allowed}. Do not trust the differences above.`;
  }
}

/**
 * Describes times with two modes: "h2 on lte: two modes, 45 loads about 0.610 s and 5 about 1.632 s
 * (+1.022 s)".
 */
export function describeModes(where: string, { fast, slow, slowLoads, loads }: TwoModes): string {
  const step = slow - fast;
  const timer =
    step > 0.9 && step < 1.3
      ? '; a step of about a second suggests a lost and retransmitted SYN or first Initial'
      : '';
  return (
    `${where}: two modes, ${loads - slowLoads} loads about ${fast.toFixed(3)} s and ${slowLoads} about ${slow.toFixed(3)} s ` +
    `(+${step.toFixed(3)} s)${timer}.`
  );
}

/**
 * Lists where the two tests disagree. They ask nearly the same question; the paired test decides.
 */
function disagreements(comparisons: readonly ArmComparison[]): string[] {
  const apart = comparisons.filter(
    ({ holmP, wilcoxon, mannWhitney }) =>
      holmP !== undefined && wilcoxon.p < ALPHA !== mannWhitney.p < ALPHA,
  );
  if (apart.length === 0) return [];
  const places = apart.map(
    (one) =>
      `${describeComparison(one)} (${formatP(one.mannWhitney.p)} instead of ${formatP(one.wilcoxon.p)})`,
  );
  return [
    `The Mann-Whitney test, which does not pair the loads, disagrees before Holm's adjustment: ${places.join(', ')}. Large differences between ` +
      'blocks hide small effects from it.',
  ];
}

export function describeComparison({ profile, page, metric, arm }: ArmComparison): string {
  const metricName = metric === 'load' ? '' : `, ${METRIC_NAMES[metric]}`;
  return `${arm} on ${profile}${page === undefined ? '' : `/${page}`}${metricName}`;
}

function isUnbounded({ blocks, medianRatio, shift }: ArmComparison): boolean {
  if (blocks === 0) return false;
  if (medianRatio === undefined || medianRatio.interval?.low === 0) return true;
  const ends = [medianRatio, shift].flatMap((one) => [
    one.value,
    one.interval?.low,
    one.interval?.high,
  ]);
  return ends.some((end) => end !== undefined && !Number.isFinite(end));
}

function estimate({ value, interval }: Estimate, text: (value: number) => string): string {
  return interval === undefined
    ? text(value)
    : `${text(value)} [${text(interval.low)}, ${text(interval.high)}]`;
}

function formatPercent(ratio: number): string {
  const percent = 100 * (ratio - 1);
  return percent < 10 ? `${percent.toFixed(1)} %` : `${percent.toFixed(0)} %`;
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
