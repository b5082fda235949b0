import type { ArmComparison } from './compare-campaign.js';
import {
  describeDisagreement,
  METRIC_NAMES,
  formatP,
  formatRatio,
  formatShift,
  describeVerdict,
} from './comparison-text.js';

/** Returns the columns of the comparison table; `page` only if pages have names. */
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

/**
 * Returns the rows of the comparison table, one per comparison. `explained` adds notes to the
 * verdict for formats without another place for them.
 */
export function comparisonRows(
  comparisons: readonly ArmComparison[],
  explained: boolean,
): string[][] {
  const paged = comparisons.some((one) => one.page !== undefined);
  return comparisons.map((one) => [
    one.profile,
    ...(paged ? [one.page ?? ''] : []),
    METRIC_NAMES[one.metric],
    `${one.arm} / ${one.base}`,
    // Without a block there is no figure, not even the infinite time of an incomplete load.
    ...(one.blocks === 0
      ? ['-', '-', '-']
      : [formatRatio(one.medianRatio), formatRatio(one.p90Ratio), formatShift(one.shift)]),
    formatP(one.holmP),
    String(one.blocks),
    verdictCell(one, explained),
  ]);
}

function verdictCell(one: ArmComparison, explained: boolean): string {
  const disagreement = explained ? describeDisagreement(one) : undefined;
  return disagreement === undefined
    ? describeVerdict(one)
    : `${describeVerdict(one)}. ${disagreement}`;
}
