import type { ArmComparison } from './campaign.js';
import { disagreementInWords, METRIC_NAMES, pInWords, ratioInWords, shiftInWords, verdictInWords } from './words.js';

/** The columns of the table of comparisons; `page` only where pages have names. */
export function comparisonColumns(comparisons: readonly ArmComparison[]): string[] {
  const page = comparisons.some((one) => one.page !== undefined) ? ['page'] : [];
  return [
    'profile',
    ...page,
    'time',
    'arms',
    'ratio of medians',
    'ratio of p90',
    'shift, ms',
    'p',
    'blocks',
    'verdict',
  ];
}

/** The rows of the table of comparisons, one for each. `explained`: with what a reader of the row has to know, where it has no other place. */
export function comparisonRows(comparisons: readonly ArmComparison[], explained: boolean): string[][] {
  const paged = comparisons.some((one) => one.page !== undefined);
  return comparisons.map((one) => [
    one.profile,
    ...(paged ? [one.page ?? ''] : []),
    METRIC_NAMES[one.metric],
    `${one.arm} / ${one.base}`,
    // Without a block there is no figure, not even that of a load that did not complete.
    ...(one.blocks === 0
      ? ['-', '-', '-']
      : [ratioInWords(one.medianRatio), ratioInWords(one.p90Ratio), shiftInWords(one.shift)]),
    pInWords(one.holmP),
    String(one.blocks),
    verdictCell(one, explained),
  ]);
}

function verdictCell(one: ArmComparison, explained: boolean): string {
  const disagreement = explained ? disagreementInWords(one) : undefined;
  return disagreement === undefined ? verdictInWords(one) : `${verdictInWords(one)}. ${disagreement}`;
}
