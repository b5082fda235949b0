import { medianRatio, type Pair } from './pairs.js';
import { deriveSeed } from '../seed.js';
import { LEAST_BLOCKS, type Estimate } from '../statistics/bootstrap.js';

/** When a campaign has blocks enough. Fixed before it begins. */
export interface StoppingRule {
  readonly min: number;
  readonly max: number;
  /** How far either end of the interval may lie from the ratio itself, in percent of it. */
  readonly intervalPercent: number;
}

/** The rule is looked at only every so many blocks: each look is one more chance to stop at a narrow moment. */
export const BLOCKS_BETWEEN_LOOKS = 5;

/**
 * Whether a campaign may stop after so many blocks: always at `max`, never before `min`, and between them when the
 * 95 % interval of the ratio of medians of each comparison is narrow enough. A comparison whose interval has no end,
 * because too many loads did not complete, goes on to `max`.
 *
 * The rule looks at widths only, never at whether an effect shows: so it does not favour large effects, as a rule that
 * waits for significance would. What it favours is moments at which the spread looks small, so that its intervals are
 * a little too narrow; how little, README says.
 */
export function enough(
  comparisons: readonly (readonly Pair[])[],
  blocks: number,
  rule: StoppingRule,
  seed: number,
): boolean {
  if (blocks >= rule.max) return true;
  const first = Math.max(rule.min, LEAST_BLOCKS);
  if (blocks < first || (blocks - first) % BLOCKS_BETWEEN_LOOKS !== 0) return false;
  return comparisons.every((pairs, at) =>
    isNarrow(medianRatio(pairs, deriveSeed(seed, 'stopping', at, blocks)), rule.intervalPercent),
  );
}

function isNarrow(ratio: Estimate | undefined, percent: number): boolean {
  if (ratio?.interval === undefined || !Number.isFinite(ratio.value) || ratio.value <= 0) return false;
  const { low, high } = ratio.interval;
  return high / ratio.value - 1 <= percent / 100 && 1 - low / ratio.value <= percent / 100;
}
