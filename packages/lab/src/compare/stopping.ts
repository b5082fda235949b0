import { medianRatio, type Pair } from './pairs.js';
import { deriveSeed } from '../campaign/seed.js';
import { MIN_BLOCKS, type Estimate } from '../statistics/bootstrap.js';

/** When a campaign has enough blocks; fixed before it begins. */
export interface StoppingRule {
  readonly min: number;
  readonly max: number;
  /** Maximum distance between the ratio and either end of its interval, in percent of the ratio. */
  readonly intervalPercent: number;
}

/**
 * Number of blocks between checks of the rule: each check is one more chance to stop at a moment
 * when the interval happens to be narrow.
 */
export const BLOCKS_BETWEEN_LOOKS = 5;

/**
 * Returns whether a campaign may stop after so many blocks: always at `max`, never before `min`,
 * and in between when the 95 % interval of every ratio of medians is narrow enough. A comparison
 * whose interval is unbounded, because too many loads did not complete, continues to `max`.
 *
 * The rule considers widths only, never whether an effect shows, so it does not favour large
 * effects, as a rule that waits for significance would. It favours moments when the spread looks
 * small, so its intervals are a little too narrow; README has the amount.
 */
export function enough(
  comparisons: readonly (readonly Pair[])[],
  blocks: number,
  rule: StoppingRule,
  seed: number,
): boolean {
  if (blocks >= rule.max) return true;
  const first = Math.max(rule.min, MIN_BLOCKS);
  if (blocks < first || (blocks - first) % BLOCKS_BETWEEN_LOOKS !== 0) return false;
  return comparisons.every((pairs, at) =>
    isNarrow(medianRatio(pairs, deriveSeed(seed, 'stopping', at, blocks)), rule.intervalPercent),
  );
}

function isNarrow(ratio: Estimate | undefined, percent: number): boolean {
  if (ratio?.interval === undefined || !Number.isFinite(ratio.value) || ratio.value <= 0)
    return false;
  const { low, high } = ratio.interval;
  return high / ratio.value - 1 <= percent / 100 && 1 - low / ratio.value <= percent / 100;
}
