/** Comparisons as people read them: the same words in table, Markdown and report. */

import { ALPHA, LEAST_CONTROL_BLOCKS, type ArmComparison, type CampaignComparisons, type Metric } from './campaign.js';
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

/** A ratio with its interval: "0.912 [0.880, 0.951]". */
export function ratioInWords(ratio: Estimate | undefined): string {
  if (ratio === undefined) return NONE;
  return estimate(ratio, (value) => (value === Infinity ? NONE : value === 0 ? '0' : value.toFixed(3)));
}

/** A shift in milliseconds with its interval: "-85.8 [-114.8, -55.2]". */
export function shiftInWords(shift: Estimate): string {
  return estimate(shift, (value) => {
    if (!Number.isFinite(value)) return value > 0 ? NONE : `-${NONE}`;
    const text = (1000 * value).toFixed(1);
    return text === '-0.0' ? '0.0' : text;
  });
}

export function pInWords(p: number | undefined): string {
  if (p === undefined) return '-';
  return p < 0.0001 ? '<0.0001' : p.toFixed(4);
}

/** Where one arm never came so far, that is the finding, and not how slow it is. */
export function verdictInWords(comparison: ArmComparison): string {
  const { arm, base, verdict, reached, blocks, metric } = comparison;
  const shares = `${arm} ${reached.arm} of ${blocks}, ${base} ${reached.base} of ${blocks}`;
  if (blocks > 0 && reached.arm === 0 && reached.base === 0) return `${NEVER[metric]} on either side: ${shares}`;
  const never = blocks === 0 ? undefined : reached.arm === 0 ? arm : reached.base === 0 ? base : undefined;
  switch (verdict.kind) {
    case 'faster':
    case 'slower': {
      if (never !== undefined) return `${never}: ${NEVER[metric]}; ${shares}`;
      const all = reached.arm === blocks && reached.base === blocks;
      return `${all ? '' : `${REACHED[metric]}: ${shares}; `}${arm} is ${verdict.kind}`;
    }
    case 'none-detected': {
      const size = verdict.ratio === undefined ? undefined : percentInWords(verdict.ratio);
      return size === undefined
        ? 'no difference detected; none of any size would have been found with 80 % power'
        : `no difference detected; one of ${size} would have been found with 80 % power`;
    }
    case 'late-paints': {
      const counts = `${arm} ${verdict.arm} of ${blocks}, ${base} ${verdict.base} of ${blocks}`;
      return `nothing can be said: larger paints came too late to count (${counts})`;
    }
    case 'too-few': {
      const seen = never === undefined ? '' : `${never}: ${NEVER[metric]}; ${shares}; `;
      return `${seen}too few blocks: with ${plural(verdict.comparisons, 'comparison')} a verdict needs ${verdict.needed}`;
    }
    case 'control': {
      if (verdict.excludesNoEffect === undefined) return `control: ${base} twice, too few blocks to see anything`;
      return `control: ${base} twice, ${verdict.excludesNoEffect ? 'and the interval excludes no effect' : 'no effect seen'}`;
    }
  }
}

/**
 * What a reader has to know of a row whose ratio and shift point in different directions; undefined for the others. They
 * are figures of two questions, so that both may be right.
 */
export function disagreementInWords({ arm, blocks, medianRatio, shift, verdict }: ArmComparison): string | undefined {
  if (blocks === 0 || medianRatio === undefined) return undefined;
  // As they are shown: what rounds to no difference points nowhere.
  const ratio = Number(medianRatio.value.toFixed(3)) - 1;
  const milliseconds = Number((1000 * shift.value).toFixed(1));
  if (!(ratio * milliseconds < 0)) return undefined;
  const [median, within] = ratio > 0 ? ['slower', 'faster'] : ['faster', 'slower'];
  const decided = verdict.kind === 'faster' || verdict.kind === 'slower';
  return (
    `Ratio and shift point in different directions: ${arm} has the ${median} median over all blocks, but by the differences within the ` +
    `blocks, large and small ones together, it is the ${within} one. The ratio compares the middle load of either arm, the shift the two ` +
    'loads of each block. ' +
    (decided ? 'The verdict goes by the blocks.' : 'Neither is a verdict.')
  );
}

/** What the load times would say with the rounds that are left out since the machine was starved or the link late. */
function allRoundsInWords(comparisons: readonly ArmComparison[]): string[] {
  const lines = comparisons.flatMap(({ metric, profile, page, arm, base, blocks, medianRatio, withAllRounds }) => {
    if (metric !== 'load' || withAllRounds === undefined) return [];
    const place = page === undefined ? profile : `${profile}, ${page}`;
    const all = `${ratioInWords(withAllRounds.medianRatio)} over ${withAllRounds.blocks}`;
    return [`${place}: ${arm} / ${base} ${all}, instead of ${ratioInWords(medianRatio)} over ${blocks}.`];
  });
  return lines.length === 0
    ? []
    : [
        'Blocks in which the machine was starved or the link late are left out. With them the ratios of the load times are:',
        ...lines,
      ];
}

/** What has to be known to read the comparisons, one sentence a line. */
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
  const bases = new Set(comparisons.filter(({ verdict }) => verdict.kind !== 'control').map((one) => one.base));
  // Of other visits and controllers others.
  const [several, its] = bases.size > 1 ? ['the one behind the stroke', 'that one'] : [base, base];
  return [
    `Each arm against ${several}, over blocks with a valid load of both. Ratio: its median by that of ${its}, below 1 is faster. ` +
      'Shift: the median of all pairwise means of the differences (Hodges-Lehmann), in milliseconds. ' +
      `[ ]: 95 % BCa bootstrap over blocks, ${resamplesFor(most)} resamples.`,
    `p: Wilcoxon's signed-rank test, two-sided, after Holm over all ${tests} comparisons; a verdict needs p < ${ALPHA}.`,
    ...(percentile ? ['Where BCa is undefined the interval is that of the plain percentiles.'] : []),
    ...(missing > 0
      ? [`${missing} ${missing === 1 ? 'pair is' : 'pairs are'} missing, since the load of one arm is invalid.`]
      : []),
    ...allRoundsInWords(comparisons),
    ...(comparisons.some(isUnbounded)
      ? [
          `"${NONE}", or a ratio of 0: a load that did not complete is there, slower than all others, so that this end has no number.`,
        ]
      : []),
    ...disagreements(comparisons),
    controlInWords(control, comparisons),
  ];
}

/** What the control says of the bench. */
export function controlInWords(control: Control, comparisons: readonly ArmComparison[]): string {
  const { intervals, excluding, allowed, verdict } = control;
  switch (verdict) {
    case 'none':
      return comparisons.some((one) => one.verdict.kind === 'control')
        ? `The control is not judged: intervals over fewer than ${LEAST_CONTROL_BLOCKS} blocks are too narrow.`
        : 'There is no control: no arm was loaded twice.';
    case 'good':
      return `Control: of ${plural(intervals, 'A/A interval')} ${excluding} exclude no effect; chance explains up to ${allowed}.`;
    case 'repair-the-bench':
      return `The bench is at fault: of ${plural(intervals, 'A/A interval')} ${excluding} exclude no effect, where chance explains ${allowed} at most. Believe no difference above.`;
  }
}

/** Times in two heaps: "h2 on lte: two modes, 45 loads about 0.610 s and 5 about 1.632 s (+1.022 s)". */
export function modesInWords(where: string, { fast, slow, slowLoads, loads }: TwoModes): string {
  const step = slow - fast;
  const timer =
    step > 0.9 && step < 1.3 ? '; a step of about a second is that of a lost SYN or first Initial, sent again' : '';
  return (
    `${where}: two modes, ${loads - slowLoads} loads about ${fast.toFixed(3)} s and ${slowLoads} about ${slow.toFixed(3)} s ` +
    `(+${step.toFixed(3)} s)${timer}.`
  );
}

/** The two tests ask nearly the same; where they disagree, the pairing decides. */
function disagreements(comparisons: readonly ArmComparison[]): string[] {
  const apart = comparisons.filter(
    ({ holmP, wilcoxon, mannWhitney }) => holmP !== undefined && wilcoxon.p < ALPHA !== mannWhitney.p < ALPHA,
  );
  if (apart.length === 0) return [];
  const places = apart.map(
    (one) => `${placeInWords(one)} (${pInWords(one.mannWhitney.p)} for ${pInWords(one.wilcoxon.p)})`,
  );
  return [
    `Mann-Whitney, which does not pair the loads, disagrees before Holm: ${places.join(', ')}. Blocks that differ much hide ` +
      'a small difference from it.',
  ];
}

export function placeInWords({ profile, page, metric, arm }: ArmComparison): string {
  const metricName = metric === 'load' ? '' : `, ${METRIC_NAMES[metric]}`;
  return `${arm} on ${profile}${page === undefined ? '' : `/${page}`}${metricName}`;
}

function isUnbounded({ blocks, medianRatio, shift }: ArmComparison): boolean {
  if (blocks === 0) return false;
  if (medianRatio === undefined || medianRatio.interval?.low === 0) return true;
  const ends = [medianRatio, shift].flatMap((one) => [one.value, one.interval?.low, one.interval?.high]);
  return ends.some((end) => end !== undefined && !Number.isFinite(end));
}

function estimate({ value, interval }: Estimate, text: (value: number) => string): string {
  return interval === undefined ? text(value) : `${text(value)} [${text(interval.low)}, ${text(interval.high)}]`;
}

function percentInWords(ratio: number): string {
  const percent = 100 * (ratio - 1);
  return percent < 10 ? `${percent.toFixed(1)} %` : `${percent.toFixed(0)} %`;
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
