import { MIN_BLOCKS } from './bootstrap.js';
import { normalQuantile, studentQuantile } from './distributions.js';
import { leastDifferences } from './rank-tests.js';
import { WalshAverages } from './walsh.js';
import { once } from './weighted.js';

/** Probability with which a difference called detectable is found. */
export const POWER = 0.8;

/**
 * Returns the smallest ratio above 1 that Wilcoxon's signed-rank test at level `alpha` detects with
 * 80 % power among as many blocks with as much spread. Undefined if there is none: too few blocks,
 * or too many loads that did not complete.
 *
 * The spread is that of the test's own statistic: the width of the test's interval for the shift of
 * the paired log-ratios, a pair of ranks among their Walsh averages. So no shape of the
 * distribution is assumed, and a few outliers affect it no more than they affect the test. A shift
 * of t(1 − α/2) + z(0.8) standard errors is detected with that power. Student's t with n − 1
 * degrees of freedom accounts for the coarse steps of the test's p at few blocks.
 */
export function detectableRatio(logRatios: readonly number[], alpha: number): number | undefined {
  const n = logRatios.length;
  if (n < Math.max(MIN_BLOCKS, leastDifferences(alpha))) return undefined;
  const averages = new WalshAverages(logRatios);
  const weights = once(n);
  const pairs = averages.count(weights);
  // Half of the middle 95 % of the test's statistic; a narrower range would follow the values'
  // granularity.
  const reach = normalQuantile(0.975) * Math.sqrt((n * (n + 1) * (2 * n + 1)) / 24);
  const low = Math.max(1, Math.round(pairs / 2 - reach));
  const width =
    averages.at(weights, pairs + 1 - low, pairs + 1 - low)[0] - averages.at(weights, low, low)[0];
  if (!Number.isFinite(width)) return undefined;
  const error = width / (2 * normalQuantile(0.975));
  return Math.exp((studentQuantile(1 - alpha / 2, n - 1) + normalQuantile(POWER)) * error);
}
