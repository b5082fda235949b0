import type { Estimate } from '../statistics/bootstrap.js';
import { CONFIDENCE } from '../statistics/bootstrap.js';
import { binomialQuantile } from '../statistics/distributions.js';

/** Number of A/A intervals that exclude "no effect". */
export interface ControlCount {
  readonly intervals: number;
  readonly excluding: number;
}

export interface Control extends ControlCount {
  /**
   * Maximum number that chance explains: the binomial distribution stays at or below it with 97.5
   * %.
   */
  readonly allowed: number;
  readonly verdict: 'none' | 'good' | 'repair-the-bench';
}

/** Returns whether a ratio's interval excludes 1; undefined without an interval. */
export function excludesNoEffect(ratio: Estimate | undefined): boolean | undefined {
  const interval = ratio?.interval;
  return interval && (interval.low > 1 || interval.high < 1);
}

/**
 * Judges a count: each interval excludes the true value in 5 % of all cases, so a few are expected.
 */
export function controlVerdict({ intervals, excluding }: ControlCount): Control {
  const allowed = binomialQuantile(0.975, intervals, 1 - CONFIDENCE);
  const verdict = intervals === 0 ? 'none' : excluding > allowed ? 'repair-the-bench' : 'good';
  return { intervals, excluding, allowed, verdict };
}

/**
 * Judges several campaigns of one bench together: each has few intervals, which show little alone.
 */
export function pooledControl(campaigns: readonly ControlCount[]): Control {
  return controlVerdict({
    intervals: campaigns.reduce((sum, { intervals }) => sum + intervals, 0),
    excluding: campaigns.reduce((sum, { excluding }) => sum + excluding, 0),
  });
}
