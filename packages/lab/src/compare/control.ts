import type { Estimate } from '../statistics/bootstrap.js';
import { CONFIDENCE } from '../statistics/bootstrap.js';
import { binomialQuantile } from '../statistics/distributions.js';

/** How many intervals of the same arm against itself exclude "no effect". */
export interface ControlCount {
  readonly intervals: number;
  readonly excluding: number;
}

export interface Control extends ControlCount {
  /** More than so many is more than chance: the binomial distribution stays at or below it with 97.5 %. */
  readonly allowed: number;
  readonly verdict: 'none' | 'good' | 'repair-the-bench';
}

/** Whether an interval of a ratio leaves 1 out; undefined without an interval. */
export function excludesNoEffect(ratio: Estimate | undefined): boolean | undefined {
  const interval = ratio?.interval;
  return interval && (interval.low > 1 || interval.high < 1);
}

/** Judges a count: each interval excludes the truth in 5 % of all cases, and so many are still no reason to worry. */
export function controlVerdict({ intervals, excluding }: ControlCount): Control {
  const allowed = binomialQuantile(0.975, intervals, 1 - CONFIDENCE);
  const verdict = intervals === 0 ? 'none' : excluding > allowed ? 'repair-the-bench' : 'good';
  return { intervals, excluding, allowed, verdict };
}

/** The verdict over several campaigns of one bench: few intervals of each show little, all together show more. */
export function pooledControl(campaigns: readonly ControlCount[]): Control {
  return controlVerdict({
    intervals: campaigns.reduce((sum, { intervals }) => sum + intervals, 0),
    excluding: campaigns.reduce((sum, { excluding }) => sum + excluding, 0),
  });
}
