import { ascending } from './rank-tests.js';

/** Two heaps of times with nothing between them. */
export interface TwoModes {
  /** The median of either heap, in seconds. */
  readonly fast: number;
  readonly slow: number;
  readonly slowLoads: number;
  readonly loads: number;
}

/** Fewer loads on a side are stragglers, not a mode. */
const LEAST_LOADS = 3;
const LEAST_SHARE = 0.05;
/** Fewer loads in all show no shape. */
const LEAST_IN_ALL = 12;
/** How many times wider the gap is than the wider heap's own spread. */
const GAP_IN_SPREADS = 2;

/**
 * Finds times that fall into two heaps, as they do when one timer decides: a lost SYN costs a second, whatever else.
 *
 * The rule: an empty gap between two neighbouring times that is at least twice as wide as the spread of either side,
 * with at least three loads and 5 % of all on each side. The spread is that of the middle 80 %, of fewer than ten
 * loads that of all. It is a reason to look at these loads, not a test: of a thousand cells of 20 to 200 loads with
 * one mode, log-normal, exponential or uniform, it names fewer than ten. Hartigan's dip was not taken, since it does not
 * see what is looked for here: a tenth of the loads a second later.
 */
export function twoModes(times: readonly number[]): TwoModes | undefined {
  const sorted = times.filter(Number.isFinite).sort(ascending);
  const n = sorted.length;
  if (n < LEAST_IN_ALL) return undefined;
  const least = Math.max(LEAST_LOADS, Math.ceil(LEAST_SHARE * n));
  let best: TwoModes | undefined;
  let widest = GAP_IN_SPREADS;
  for (let split = least; split <= n - least; split++) {
    const [fast, slow] = [sorted.slice(0, split), sorted.slice(split)];
    const gap = (slow[0] as number) - (fast.at(-1) as number);
    const spreads = gap / Math.max(spread(fast), spread(slow));
    if (spreads < widest || Number.isNaN(spreads)) continue;
    widest = spreads;
    best = { fast: middle(fast), slow: middle(slow), slowLoads: slow.length, loads: n };
  }
  return best;
}

function spread(sorted: readonly number[]): number {
  const aside = Math.floor(sorted.length / 10);
  return (sorted.at(-1 - aside) as number) - (sorted[aside] as number);
}

function middle(sorted: readonly number[]): number {
  return sorted[(sorted.length - 1) >> 1] as number;
}
